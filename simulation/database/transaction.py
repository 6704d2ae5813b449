"""A transaction under READ COMMITTED: each statement sees what was committed when it began, a row that another holds is
waited for and looked at again, and any error rolls everything back."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from simulation.database.errors import (
    DeadlockVictimError,
    ForeignKeyViolationError,
    TransactionOverError,
    UniqueViolationError,
)
from simulation.database.table import OldVersion, Record, Row, Table, UniqueKey

if TYPE_CHECKING:
    from simulation.database.engine import MemoryDatabase

# Row locks in order of strength; two of them conflict when their sum reaches CONFLICT.
KEY_SHARE: Final = 0
SHARE: Final = 1
NO_KEY_UPDATE: Final = 2  # what an UPDATE takes
UPDATE: Final = 3
CONFLICT: Final = 3


class Transaction:
    """One at a time a session. `with` commits at the end and rolls back on any exception, a kill included."""

    __slots__ = ("_blockers", "_database", "_locked", "_now_ms", "_written", "open", "snapshot")

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._locked: list[Record] = []
        self._written: list[Record] = []
        self._blockers: Callable[[], list[Transaction]] | None = None  # whom it waits for
        self._now_ms: int | None = None
        self.open = True
        self.snapshot = 0  # sequence of the newest commit that the statement sees

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.rollback()

    # -- its course
    def statement(self, name: str) -> None:
        """Begin a statement: a turn, then a new snapshot."""
        if not self.open:
            raise TransactionOverError(f"{name}: the transaction has ended")
        try:
            self._database.turns.pause("db.statement:" + name)
        except BaseException:
            self.rollback()
            raise
        self.snapshot = self._database.commits

    @property
    def now_ms(self) -> int:
        """The server's now(): the same in all of a transaction."""
        if self._now_ms is None:
            self._now_ms = self._database.clock.wall_ms()
        return self._now_ms

    def commit(self) -> None:
        """An exception of the turn before it rolls back, one of the turn after it finds the work committed."""
        if not self.open:
            raise TransactionOverError("commit: the transaction has failed")
        try:
            self._database.turns.pause("db.commit")
        except BaseException:
            self.rollback()
            raise
        self.open = False
        if self._written:
            seen = self._database.waiting > 0
            self._database.commits += 1
            for record in self._written:
                before, after = record.row, record.pending
                assert after is not None
                record.table.settle(record, before, after, seen)
                self._database.on_change(record.table.name, before, after)
                record.older = OldVersion(before, record.sequence, record.older) if seen else None
                record.row, record.sequence = after, self._database.commits
                record.pending = record.writer = None
        self._release()
        self._database.turns.pause("db.committed")

    def rollback(self) -> None:
        """Harmless when it has ended."""
        if not self.open:
            return
        self.open = False
        for record in self._written:
            pending = record.pending
            assert pending is not None
            record.table.undo(record, pending)
            record.pending = record.writer = None
        self._release()

    def _release(self) -> None:
        for record in self._locked:
            locks = record.locks
            assert locks is not None
            del locks[self]
            if not locks:
                record.locks = None

    # -- reading
    def see(self, record: Record) -> Row | None:
        """The version of the statement's snapshot, or what this transaction has made of it."""
        if record.writer is self:
            return record.pending
        if record.sequence <= self.snapshot:
            return record.row
        version = record.older
        while version is not None and version.sequence > self.snapshot:
            version = version.older
        return None if version is None else version.row

    def find(self, table: Table, key: object) -> Row | None:
        """By primary key."""
        record = table.primary.records.get(key)
        return None if record is None else self.see(record)

    def rows(self, table: Table) -> list[Row]:
        """All that the statement sees, in order of insertion."""
        return [row for record in table.records.values() if (row := self.see(record)) is not None]

    # -- locking
    def is_held(self, record: Record, mode: int) -> bool:
        """Whether another transaction's lock conflicts: SKIP LOCKED leaves such rows out."""
        locks = record.locks
        return locks is not None and any(
            held + mode >= CONFLICT for holder, held in locks.items() if holder is not self
        )

    def lock(self, record: Record, mode: int) -> Row:
        """Hold the row until the transaction ends; its newest version, which may differ from the one seen."""
        locks = record.locks
        if locks is None:
            record.locks = {self: mode}
            self._locked.append(record)
        else:
            held = locks.get(self)
            if held is None or held < mode:
                if len(locks) > (held is not None):
                    self._await_lock(record, mode)
                    locks = record.locks
                if locks is None:
                    locks = record.locks = {}
                if held is None:
                    self._locked.append(record)
                locks[self] = mode
        row = record.pending if record.writer is self else record.row
        assert row is not None
        return row

    def take(self, record: Record, holds: Callable[[Row], bool]) -> Row | None:
        """What an UPDATE does with a row of its table: the newest version, locked, when `holds` is true of the version
        that the statement sees and still of the newest one; else None."""
        seen = self.see(record)
        if seen is None or not holds(seen):
            return None
        newest = self.lock(record, NO_KEY_UPDATE)
        return newest if newest is seen or holds(newest) else None

    def _await_lock(self, record: Record, mode: int) -> None:
        def blockers() -> list[Transaction]:
            locks = record.locks or {}
            return [holder for holder, held in locks.items() if holder is not self and held + mode >= CONFLICT]

        self._await(record.table, blockers)

    def _await(self, table: Table, blockers: Callable[[], list[Transaction]]) -> None:
        """Return when there are none. The server rolls back whoever closes a circle."""
        if not blockers():
            return
        database = self._database
        self._blockers = blockers
        database.waiting += 1
        try:
            while blockers():
                if self._waits_for_itself():
                    database.deadlocks += 1
                    raise DeadlockVictimError(table.name)
                database.turns.wait("db.lock:" + table.name, lambda: not blockers())
        except BaseException:
            self.rollback()
            raise
        finally:
            database.waiting -= 1
            self._blockers = None

    def _waits_for_itself(self) -> bool:
        seen: list[Transaction] = []
        ahead = [self]
        while ahead:
            blockers = ahead.pop()._blockers
            for other in blockers() if blockers is not None else ():
                if other is self:
                    return True
                if other not in seen:
                    seen.append(other)
                    ahead.append(other)
        return False

    # -- writing
    def update(self, record: Record, changes: Row) -> Row:
        """The row, locked by `lock` before, with other values."""
        before = record.pending if record.writer is self else record.row
        assert before is not None
        after = {**before, **changes}
        table = record.table
        fresh = () if table.key_columns.isdisjoint(changes) else table.new_keys(before, after)
        try:
            table.check(after)
            for key, value in fresh:
                if self._conflict(table, key, value) is not None:
                    raise UniqueViolationError(table.name, key.columns, value)
        except BaseException:
            self.rollback()
            raise
        table.change(record, before, after, fresh)
        if record.writer is None:
            record.writer = self
            self._written.append(record)
        record.pending = after
        return after

    def insert(self, table: Table, values: Row) -> Row:
        """A new row from some of its columns. Raises ConstraintError, after waiting for whoever writes the same key."""
        return self.insert_row(table, table.complete(values, self.now_ms))

    def insert_new(self, table: Table, values: Row) -> Row | None:
        """ON CONFLICT DO NOTHING on the primary key; None: it is there."""
        row = table.complete(values, self.now_ms)
        if self._conflict(table, table.primary, table.primary.of(row)) is not None:
            return None
        return self.insert_row(table, row)

    def insert_row(self, table: Table, row: Row) -> Row:
        """A complete row."""
        try:
            table.check(row)
            for key in table.keys:
                value = key.of(row)
                if value is not None and self._conflict(table, key, value) is not None:
                    raise UniqueViolationError(table.name, key.columns, value)
        except BaseException:
            self.rollback()
            raise
        record = table.add(row)
        record.pending, record.writer = row, self
        self._written.append(record)
        for column, parent in table.references:
            self._hold_parent(table, column, parent, row[column])
        return row

    def conflicting(self, table: Table, columns: tuple[str, ...], row: Row) -> Record | None:
        """ON CONFLICT (columns): the record that `row` collides with, committed or of this transaction."""
        (key,) = (key for key in table.keys if key.columns == columns)
        return self._conflict(table, key, key.of(row))

    def _conflict(self, table: Table, key: UniqueKey, value: object) -> Record | None:
        """The record under a key, once nobody else is writing it: a writer may yet roll back."""
        while True:
            record = key.records.get(value)
            if record is None:
                return None
            writer = record.writer
            if writer is None or writer is self:
                return record
            self._await(table, lambda writer=writer: [writer] if writer.open else [])  # type: ignore[misc]

    def _hold_parent(self, table: Table, column: str, parent: Table, key: object) -> None:
        if key is None:
            return
        record = parent.primary.records.get(key)
        if record is None or (record.row is None and record.writer is not self):
            self.rollback()
            raise ForeignKeyViolationError(table.name, column, key)
        self.lock(record, KEY_SHARE)
