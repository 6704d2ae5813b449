"""The two relays' outboxes in memory: sql/queries/rule_relay.sql, trigger_relay.sql and sql/relay_store.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from contracts.frames_pb2 import Command, CreateRule, RemoveRule
from finalizer.ports import FencedError, NumberedCommand, OutboxTrigger
from simulation.database.engine import MemoryDatabase, Session
from simulation.database.errors import DatabaseAwayError
from simulation.database.schema import ONLY
from simulation.database.table import Record, Row
from simulation.database.transaction import NO_KEY_UPDATE, Transaction
from sql.rules import rule_message

LEADER: Final = "alerts rule relay"


class MemoryRuleRelayStore:
    """RuleRelayStore. A simulation that kills its process calls `break_session`: the server ends what it held."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._leading: Session | None = None

    def lead(self) -> bool:
        if self._leading is not None:
            return True
        session = Session()
        try:
            with self._database.transaction() as tx:
                leads = try_lead(self._database, tx, session)
        except BaseException:
            self._database.end_session(session)
            raise
        if leads:
            self._leading = session
        return leads

    def break_session(self) -> None:
        """The leading connection is cut. Another may lead from now on, while this one still takes itself for the
        leader, as it never uses that connection."""
        if self._leading is not None:
            self._database.end_session(self._leading)

    def shards_waiting(self, limit: int, after: str = "") -> Sequence[str]:
        with self._database.transaction() as tx:
            return find_waiting_shards(self._database, tx, limit, after)

    def take(self, shards: Sequence[str]) -> dict[str, int]:
        with self._database.transaction() as tx:
            return take_shards(self._database, tx, shards)

    def number(self, fences: Mapping[str, int], limit: int) -> int:
        with self._fenced(fences) as tx:
            return number_commands(self._database, tx, list(fences), limit)

    def numbered(self, fences: Mapping[str, int], limit: int) -> Sequence[NumberedCommand]:
        with self._database.transaction() as tx:
            return read_numbered(self._database, tx, list(fences), limit)

    def mark_published(self, fences: Mapping[str, int], command_ids: Sequence[int]) -> None:
        with self._fenced(fences) as tx:
            mark_commands_published(self._database, tx, command_ids)

    @contextmanager
    def _fenced(self, fences: Mapping[str, int]) -> Iterator[Transaction]:
        """A transaction in which nobody can take these shards. Raises FencedError when somebody has."""
        with self._database.transaction() as tx:
            held = lock_fences(self._database, tx, list(fences))
            lost = [shard for shard, fence in fences.items() if held.get(shard) != fence]
            if lost:
                raise FencedError(lost)
            yield tx

    def resign(self) -> None:
        session, self._leading = self._leading, None
        if session is None:
            return
        try:
            with suppress(DatabaseAwayError), self._database.transaction() as tx:
                tx.statement("resign")
                self._database.end_session(session)
        finally:
            self._database.end_session(session)


def try_lead(database: MemoryDatabase, tx: Transaction, session: Session) -> bool:
    tx.statement("try_lead")
    return database.try_advisory_lock(session, LEADER)


def find_waiting_shards(database: MemoryDatabase, tx: Transaction, limit: int, after: str) -> list[str]:
    tx.statement("find_waiting_shards")
    waiting = [
        shard
        for shard, records in database.rule_commands.indexes["unpublished"].records.items()
        if any((row := tx.see(record)) is not None and row["published_at"] is None for record in records.values())
    ]
    return sorted(str(shard) for shard in waiting if str(shard) > after)[:limit]


def take_shards(database: MemoryDatabase, tx: Transaction, shards: Sequence[str]) -> dict[str, int]:
    """shard -> fence, one higher than any before."""
    tx.statement("take_shards")
    table = database.shard_relays
    taken = {}
    for shard in sorted(shards):
        row = {"shard": shard, "fence": 1}
        record = tx.conflicting(table, ("shard",), row)
        if record is None:
            taken[shard] = tx.insert(table, row)["fence"]
        else:
            fence = tx.lock(record, NO_KEY_UPDATE)["fence"]
            taken[shard] = tx.update(record, {"fence": fence + 1})["fence"]
    return taken


def lock_fences(database: MemoryDatabase, tx: Transaction, shards: Sequence[str]) -> dict[str, int]:
    tx.statement("lock_fences")
    records = database.shard_relays.primary.records
    found = [record for shard in sorted(set(shards)) if (record := records.get(shard)) is not None]
    seen = [record for record in found if tx.see(record) is not None]
    return {row["shard"]: row["fence"] for row in (tx.lock(record, NO_KEY_UPDATE) for record in seen)}


def _unpublished(database: MemoryDatabase, tx: Transaction, shards: Sequence[str], numbered: bool) -> list[Row]:
    index = database.rule_commands.indexes["unpublished"]
    rows = (tx.see(record) for shard in dict.fromkeys(shards) for record in index.find(shard))
    return [
        row
        for row in rows
        if row is not None and row["published_at"] is None and (row["number"] is not None) == numbered
    ]


def number_commands(database: MemoryDatabase, tx: Transaction, shards: Sequence[str], limit: int) -> int:
    """In order of command_id among those that the statement sees, dense per shard."""
    tx.statement("number_commands")
    relays = {shard: tx.find(database.shard_relays, shard) for shard in shards}
    fresh = sorted(_unpublished(database, tx, shards, numbered=False), key=lambda row: int(row["command_id"]))[:limit]
    last_numbers: dict[str, int] = {}
    for row in fresh:
        relay = relays[row["shard"]]
        if relay is None:
            continue
        before: int = last_numbers.get(row["shard"]) or relay["last_number"]
        number = before + 1
        record = database.rule_commands.primary.records[row["command_id"]]
        tx.lock(record, NO_KEY_UPDATE)
        tx.update(record, {"epoch": relay["epoch"], "number": number})
        last_numbers[row["shard"]] = number
    for shard, number in last_numbers.items():
        record = database.shard_relays.primary.records[shard]
        tx.lock(record, NO_KEY_UPDATE)
        tx.update(record, {"last_number": number})
    return len(fresh)


def read_numbered(
    database: MemoryDatabase, tx: Transaction, shards: Sequence[str], limit: int
) -> list[NumberedCommand]:
    tx.statement("read_numbered")
    rows = _unpublished(database, tx, shards, numbered=True)
    rows.sort(key=lambda row: (row["shard"], row["epoch"], row["number"]))
    found: list[NumberedCommand] = []
    for row in rows:
        if len(found) < limit:
            command = _command(row, tx.find(database.alerts, row["alert_id"]))
            found.append(NumberedCommand(row["command_id"], row["shard"], row["epoch"], row["number"], command))
    return found


def _command(row: Row, alert: Row | None) -> Command:
    if row["payload"] is not None:
        command: Command = Command.FromString(row["payload"])
        return command
    assert alert is not None  # alerts are never deleted
    rule = rule_message({**alert, "version": row["version"]})
    if row["action"] == "create":
        return Command(create=CreateRule(rule=rule))
    return Command(remove=RemoveRule(rule=rule))


def mark_commands_published(database: MemoryDatabase, tx: Transaction, command_ids: Sequence[int]) -> None:
    tx.statement("mark_commands_published")
    for command_id in command_ids:
        record = database.rule_commands.primary.records.get(command_id)
        if record is not None and tx.take(record, lambda row: row["published_at"] is None) is not None:
            tx.update(record, {"published_at": tx.now_ms})


class MemoryTriggerRelayStore:
    """TriggerRelayStore."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    @contextmanager
    def unpublished(self, limit: int) -> Iterator[MemoryTriggerWork]:
        with self._database.transaction() as tx:
            yield MemoryTriggerWork(self._database, tx, hold_unpublished(self._database, tx, limit))


class MemoryTriggerWork:
    """TriggerRelayWork over an open transaction."""

    def __init__(self, database: MemoryDatabase, tx: Transaction, triggers: Sequence[OutboxTrigger]) -> None:
        self._database, self._tx = database, tx
        self.triggers = triggers

    def mark_published(self) -> None:
        mark_triggers_published(self._database, self._tx, [trigger.trigger_id for trigger in self.triggers])


def hold_unpublished(database: MemoryDatabase, tx: Transaction, limit: int) -> list[OutboxTrigger]:
    """The oldest first; rows that another relay holds are left to it."""
    tx.statement("hold_unpublished")
    found: list[tuple[int, str, Record]] = [
        (row["created_at"], row["trigger_id"], record)
        for record in database.triggers.indexes["unpublished"].find(ONLY)
        if (row := tx.see(record)) is not None and row["published_at"] is None
    ]
    held: list[OutboxTrigger] = []
    for _, _, record in sorted(found, key=lambda place: place[:2]):
        if len(held) == limit:
            break
        if not tx.is_held(record, NO_KEY_UPDATE):
            row = tx.lock(record, NO_KEY_UPDATE)
            held.append(OutboxTrigger(row["trigger_id"], row["owner_id"], row["payload"]))
    return held


def mark_triggers_published(database: MemoryDatabase, tx: Transaction, trigger_ids: Sequence[str]) -> None:
    tx.statement("mark_triggers_published")
    for trigger_id in trigger_ids:
        record = database.triggers.primary.records.get(trigger_id)
        if record is not None and tx.take(record, lambda row: True) is not None:
            tx.update(record, {"published_at": tx.now_ms})
