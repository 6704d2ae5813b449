"""Reshards in memory: sql/queries/reshard.sql and sql/reshard_store.py, query by query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from contracts.frames_pb2 import Candidate, Control, Routing
from contracts.keys import bucket_of
from contracts.routes import SymbolRoute
from contracts.vocabulary import Status
from finalizer.domain.batch import Claim
from finalizer.shard_ports import Cursor, LiveAlert, Phase, Reshard
from simulation.database.claims import apply_claims, write_commands
from simulation.database.engine import MemoryDatabase
from simulation.database.finalizer_store import release_ended
from simulation.database.moves import NOT_MOVING
from simulation.database.reference_store import insert_control, open_reshards
from simulation.database.schema import LIVE_STATUSES
from simulation.database.table import Record, Row
from simulation.database.transaction import NO_KEY_UPDATE, UPDATE, Transaction


class MemoryReshardStore:
    """ReshardStore."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    def under_way(self) -> Sequence[int]:
        with self._database.transaction() as tx:
            tx.statement("find_under_way")
            return [row["reshard_id"] for row in open_reshards(self._database, tx)]

    @contextmanager
    def hold(self, reshard_id: int) -> Iterator[MemoryReshardWork | None]:
        with self._database.transaction() as tx:
            tx.statement("hold_reshard")
            record = self._database.reshards.primary.records[reshard_id]
            row = None if tx.is_held(record, NO_KEY_UPDATE) else tx.take(record, lambda row: row["phase"] != "DONE")
            yield None if row is None else MemoryReshardWork(self._database, tx, row)


class MemoryReshardWork:
    """ReshardWork over an open transaction that holds the row."""

    def __init__(self, database: MemoryDatabase, tx: Transaction, row: Row) -> None:
        self._database, self._tx = database, tx
        self.reshard = reshard_of(database, tx, row)
        self._record = database.reshards.primary.records[row["reshard_id"]]

    def marked(self, phase: Routing.Phase, shards: Sequence[str]) -> int:
        self._tx.statement("count_marked")
        name, symbol = Routing.Phase.Name(phase), self.reshard.new.symbol
        rows = (self._tx.find(self._database.routing_marks, (shard, symbol, name)) for shard in shards)
        return sum(row is not None and row["version"] == self.reshard.version for row in rows)

    def live(self, shard: str, after: Cursor, limit: int) -> Sequence[LiveAlert]:
        return list_live(self._database, self._tx, shard, after, limit)

    def unpublished(self, shards: Sequence[str], limit: int) -> int:
        self._tx.statement("count_waiting_commands")
        index = self._database.rule_commands.indexes["unpublished"]
        rows = (self._tx.see(record) for shard in shards for record in index.find(shard))
        return min(limit, sum(row is not None and row["published_at"] is None for row in rows))

    def copy(self, shard: str, targets: Mapping[int, str]) -> int:
        def holds(row: Row) -> bool:
            return bool(row["shard"] == shard and row["status"] == "ACTIVE" and row["moving_to"] is None)

        self._tx.statement("copy_alerts")
        held = [record for alert_id in targets if (record := self._skip_locked(alert_id, holds)) is not None]
        copied = [
            self._tx.update(record, {**NOT_MOVING, "moving_to": targets[self._newest(record)["alert_id"]]})
            for record in held
        ]
        write_commands(self._database, self._tx, [{**row, "shard": row["moving_to"]} for row in copied], "create")
        self._count("copied", len(copied))
        return len(copied)

    def switch(self, shard: str, targets: Mapping[int, str], finalized_at_ms: int) -> int:
        def holds(row: Row) -> bool:
            there = row["moving_to"] == targets[row["alert_id"]] and row["moving_epoch"] is not None
            return bool(row["shard"] == shard and (row["status"] == "PAUSED" or (row["status"] == "ACTIVE" and there)))

        tx, database = self._tx, self._database
        tx.statement("switch_alerts")
        held = [record for alert_id in targets if (record := self._skip_locked(alert_id, holds)) is not None]
        switched: set[int] = set()
        for record in held:
            row = self._newest(record)
            active = row["status"] == "ACTIVE"
            place = {"active_epoch": row["moving_epoch"], "active_position": row["moving_position"]}
            changes = place if active else {"active_epoch": None, "active_position": None}
            tx.update(record, {**changes, **NOT_MOVING, "shard": targets[row["alert_id"]]})
            switched.add(row["alert_id"])
        self._count("switched", len(switched))
        claims = self._take_parked(switched)
        if claims:
            ended, _ = apply_claims(database, tx, claims, finalized_at_ms)
            release_ended(database, tx, ended)
        return len(switched)

    def _take_parked(self, alert_ids: set[int]) -> list[Claim]:
        self._tx.statement("take_parked")
        taken = []
        for record in list(self._database.parked_claims.records.values()):
            row = self._tx.see(record)
            if row is not None and row["alert_id"] in alert_ids and not row["taken"]:
                self._tx.lock(record, NO_KEY_UPDATE)
                taken.append(self._tx.update(record, {"taken": True}))
        taken.sort(key=lambda row: (row["shard"], row["epoch"], row["position"]))
        return [
            Claim(row["shard"], row["epoch"], row["position"], Candidate.FromString(row["candidate"])) for row in taken
        ]

    def _newest(self, record: Record) -> Row:
        return self._tx.lock(record, NO_KEY_UPDATE)

    def _skip_locked(self, alert_id: int, holds: Callable[[Row], bool]) -> Record | None:
        record = self._database.alerts.primary.records.get(alert_id)
        if record is None or self._tx.is_held(record, NO_KEY_UPDATE) or self._tx.take(record, holds) is None:
            return None
        return record

    def _count(self, name: str, by: int) -> None:
        row = self._tx.lock(self._record, NO_KEY_UPDATE)
        self._tx.update(self._record, {name: row[name] + by})

    def forget_claims(self, limit: int) -> int:
        """Nothing is deleted in memory: no statement looks for what is forgotten."""
        self._tx.statement("forget_parked")
        return 0

    def route_creates(self) -> None:
        new = self.reshard.new
        self._tx.statement("route_creates")
        record = self._database.instruments.primary.records[new.symbol]
        self._tx.lock(record, UPDATE)
        self._tx.update(record, {"shards": new.shards})

    def send(self, phase: Routing.Phase) -> None:
        new = self.reshard.new
        control = Control(routing=self.reshard.routing(phase))
        insert_control(self._database, self._tx, new.feed, bucket_of(new.symbol, new.buckets), control)

    def enter(self, phase: Phase) -> None:
        self._tx.statement("enter_phase")
        ended_at = self._tx.now_ms if phase is Phase.DONE else None
        self._tx.update(self._record, {"phase": str(phase), "ended_at": ended_at})


def reshard_of(database: MemoryDatabase, tx: Transaction, row: Row) -> Reshard:
    """Of a row of `reshards`."""
    instrument = tx.find(database.instruments, row["symbol"])
    assert instrument is not None  # a foreign key
    feed = tx.find(database.feeds, instrument["feed"])
    assert feed is not None  # a foreign key
    old, new = (
        SymbolRoute(row["symbol"], feed["feed"], feed["buckets"], row[shards])
        for shards in ("old_shards", "new_shards")
    )
    return Reshard(row["reshard_id"], row["version"], Phase(row["phase"]), old, new)


def list_live(database: MemoryDatabase, tx: Transaction, shard: str, after: Cursor, limit: int) -> list[LiveAlert]:
    """Live alerts of a shard behind `after`."""
    tx.statement("list_live")
    rows = (tx.see(record) for record in database.alerts.indexes["live_of_shard"].find(shard))
    found = [
        LiveAlert(
            row["alert_id"],
            row["symbol"],
            Status(row["status"]),
            row["expires_at_ms"],
            row["moving_to"] is not None,
            row["moving_to"] is not None and row["moving_epoch"] is not None,
        )
        for row in rows
        if row is not None and row["shard"] == shard and row["status"] in LIVE_STATUSES
    ]
    return sorted((alert for alert in found if alert.cursor > after), key=lambda alert: alert.cursor)[:limit]
