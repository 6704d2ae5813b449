"""Rows with their versions, unique keys and partial indexes. Nothing here waits: transaction.py does."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from simulation.database.errors import CheckViolationError

if TYPE_CHECKING:
    from simulation.database.transaction import Transaction

Row = dict[str, Any]  # never changed once it is a version of a record
Check = Callable[[Row], str | None]


class OldVersion:
    """What a record was before a commit that a waiting statement must not see."""

    __slots__ = ("older", "row", "sequence")

    def __init__(self, row: Row | None, sequence: int, older: OldVersion | None) -> None:
        self.row, self.sequence, self.older = row, sequence, older


class Record:
    """One row: the committed version, and the one that an open transaction has made of it."""

    __slots__ = ("locks", "number", "older", "pending", "row", "sequence", "table", "writer")

    def __init__(self, table: Table, number: int) -> None:
        self.table = table
        self.number = number  # in order of insertion
        self.row: Row | None = None  # None: not committed yet
        self.sequence = 0  # of the commit that made `row`
        self.older: OldVersion | None = None
        self.pending: Row | None = None
        self.writer: Transaction | None = None
        self.locks: dict[Transaction, int] | None = None


class UniqueKey:
    """Columns that no two rows share; a row with a NULL in them is free, and a key once set stays."""

    __slots__ = ("columns", "get", "records", "single")

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.single = len(columns) == 1
        self.get: Callable[[Row], Any] = itemgetter(*columns)
        self.records: dict[Hashable, Record] = {}

    def of(self, row: Row) -> Hashable | None:
        key: Hashable = self.get(row)
        if self.single:
            return key
        return None if None in key else key  # type: ignore[operator]  # a tuple: there are several columns


class PartialIndex:
    """Key -> records that may have it: a reader checks the version that it sees."""

    __slots__ = ("of", "records")

    def __init__(self, of: Callable[[Row], Hashable | None]) -> None:
        self.of = of
        self.records: dict[Hashable, dict[int, Record]] = {}

    def add(self, key: Hashable, record: Record) -> None:
        entries = self.records.get(key)
        if entries is None:
            self.records[key] = {record.number: record}
        else:
            entries[record.number] = record

    def drop(self, key: Hashable, record: Record) -> None:
        entries = self.records[key]
        entries.pop(record.number, None)
        if not entries:
            del self.records[key]

    def find(self, key: Hashable) -> Sequence[Record]:
        entries = self.records.get(key)
        return list(entries.values()) if entries else ()


class Table:
    """A table of the schema. The first of `keys` is its primary key."""

    def __init__(
        self,
        name: str,
        keys: Sequence[tuple[str, ...]],
        defaults: Row,
        *,
        identity: str | None = None,
        stamp: str | None = "created_at",
        references: Mapping[str, Table] | None = None,
        indexes: Mapping[str, Callable[[Row], Hashable | None]] | None = None,
        check: Check | None = None,
    ) -> None:
        """defaults: every column. identity: GENERATED ALWAYS AS IDENTITY. stamp: DEFAULT now(). references: column ->
        the table whose primary key it names. indexes: name -> a row's key in it, None: the row is not in it."""
        self.name = name
        self._defaults, self._identity, self._stamp = defaults, identity, stamp
        self.keys = [UniqueKey(columns) for columns in keys]
        self.primary = self.keys[0]
        self.key_columns = frozenset(column for columns in keys for column in columns)
        self.references = list((references or {}).items())
        self.indexes = {name: PartialIndex(of) for name, of in (indexes or {}).items()}
        self.records: dict[int, Record] = {}
        self._partial = list(self.indexes.values())
        self._check = check
        self._numbers = 0
        self._last_identity = 0

    def next_identity(self) -> int:
        """Never given back, as a sequence of the server's."""
        self._last_identity += 1
        return self._last_identity

    def complete(self, values: Row, now_ms: int) -> Row:
        """A whole row. Takes an identity even when the row is then not inserted."""
        row = {**self._defaults, **values}
        if self._stamp is not None:
            row[self._stamp] = now_ms
        if self._identity is not None and row[self._identity] is None:
            row[self._identity] = self.next_identity()
        return row

    def committed(self) -> list[Row]:
        """What anybody may see, in order of insertion."""
        return [record.row for record in self.records.values() if record.row is not None]

    def check(self, row: Row) -> None:
        if self._check is not None:
            wrong = self._check(row)
            if wrong is not None:
                raise CheckViolationError(self.name, wrong)

    # -- called by the transaction that writes
    def add(self, row: Row) -> Record:
        """A new record with `row` as its pending version; its keys are free."""
        self._numbers += 1
        record = self.records[self._numbers] = Record(self, self._numbers)
        for key in self.keys:
            value = key.of(row)
            if value is not None:
                key.records[value] = record
        for index in self._partial:
            value = index.of(row)
            if value is not None:
                index.add(value, record)
        return record

    def new_keys(self, before: Row, after: Row) -> list[tuple[UniqueKey, Hashable]]:
        """Those that `after` sets; none is ever changed."""
        found = []
        for key in self.keys:
            old, new = key.of(before), key.of(after)
            if old != new:
                if old is not None or new is None:
                    raise NotImplementedError(f"{self.name}: the key {key.columns} of a row changes")
                found.append((key, new))
        return found

    def change(self, record: Record, before: Row, after: Row, fresh: Sequence[tuple[UniqueKey, Hashable]]) -> None:
        """Index entries of `after` and its new keys; `before` is pending or committed."""
        for unique, value in fresh:
            unique.records[value] = record
        for index in self._partial:
            old, new = index.of(before), index.of(after)
            if old != new:
                if old is not None and before is not record.row and old != self._committed_entry(index, record):
                    index.drop(old, record)
                if new is not None:
                    index.add(new, record)

    def settle(self, record: Record, before: Row | None, after: Row, seen: bool) -> None:
        """`after` was committed. seen: a statement that waits may still look for `before`, so its entries stay."""
        if before is None or seen:
            return
        for index in self._partial:
            old = index.of(before)
            if old is not None and old != index.of(after):
                index.drop(old, record)

    def undo(self, record: Record, pending: Row) -> None:
        """`pending` was rolled back."""
        row = record.row
        if row is None:
            del self.records[record.number]
        for key in self.keys:
            value = key.of(pending)
            if value is not None and (row is None or key.of(row) != value):
                del key.records[value]
        for index in self._partial:
            value = index.of(pending)
            if value is not None and (row is None or index.of(row) != value):
                index.drop(value, record)

    def _committed_entry(self, index: PartialIndex, record: Record) -> Hashable | None:
        return None if record.row is None else index.of(record.row)
