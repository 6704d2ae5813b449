"""Rebuilds in memory: sql/queries/rebuild.sql and sql/rebuild_store.py, query by query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from contracts.frames_pb2 import Command
from contracts.keys import bucket_shard
from contracts.routes import SymbolRoute
from finalizer.shard_ports import Cursor, LiveAlert, Rebuild, RebuildPhase, RulePage
from simulation.database.engine import MemoryDatabase
from simulation.database.reference_store import open_rebuilds, open_reshards
from simulation.database.reshard_store import list_live, reshard_of
from simulation.database.table import Row
from simulation.database.transaction import NO_KEY_UPDATE, SHARE, Transaction
from sql.reference_store import ProtocolUnderWayError, UnknownFeedError, UnknownInstrumentError
from sql.rules import assert_rules


class MemoryRebuildStore:
    """RebuildStore, and how a rebuild is asked for."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    def request(self, feed: str | None, symbol: str | None, *, repair: bool) -> list[int]:
        database = self._database
        with database.transaction() as tx:
            ids = []
            for shard in self._shards(tx, feed, symbol):
                tx.statement("insert_rebuild")
                if any(row["shard"] == shard for row in open_rebuilds(database, tx)):
                    database.rebuilds.next_identity()  # an insert that conflicts has taken one
                    raise ProtocolUnderWayError(f"reading out shard {shard}", "it is being rebuilt or verified")
                values: Row = {"shard": shard, "symbol": symbol, "repair": repair, "differences": []}
                ids.append(int(tx.insert(database.rebuilds, values)["rebuild_id"]))
            return ids

    def _shards(self, tx: Transaction, feed: str | None, symbol: str | None) -> list[str]:
        database = self._database
        routes = self._routes(tx, feed, symbol)
        if symbol is not None and not routes:
            raise UnknownInstrumentError(symbol)
        tx.statement("list_feeds")
        feeds = [row["feed"] for row in tx.rows(database.feeds)]
        wanted = sorted({route.feed for route in routes} if symbol is not None else {feed} if feed else set(feeds))
        shards: set[str] = set()
        for name in wanted:
            tx.statement("lock_feed")
            record = database.feeds.primary.records.get(name)
            if record is None or tx.see(record) is None:
                raise UnknownFeedError(name)
            row = tx.lock(record, NO_KEY_UPDATE)
            if symbol is None:
                shards.update(bucket_shard(name, bucket) for bucket in range(row["buckets"]))
        for route in self._routes(tx, feed, symbol):
            if symbol is not None or route.shards > 1:
                shards.update(route.all_shards())
        tx.statement("find_open_of_feed")
        under_way = [reshard_of(database, tx, row) for row in open_reshards(database, tx)]
        for moving in sorted(under_way, key=lambda moving: moving.new.feed):
            if moving.new.feed in wanted and shards & {*moving.old.all_shards(), *moving.new.all_shards()}:
                what = f"{moving.new.symbol} is moving to {moving.new.shards} shards"
                raise ProtocolUnderWayError("reading out its shards", what)
        return sorted(shards)

    def _routes(self, tx: Transaction, feed: str | None, symbol: str | None) -> list[SymbolRoute]:
        tx.statement("list_routes")
        found = []
        for row in tx.rows(self._database.instruments):
            if feed in (None, row["feed"]) and symbol in (None, row["symbol"]):
                declared = tx.find(self._database.feeds, row["feed"])
                assert declared is not None  # a foreign key
                found.append(SymbolRoute(row["symbol"], row["feed"], declared["buckets"], row["shards"]))
        return found

    def under_way(self) -> Sequence[int]:
        with self._database.transaction() as tx:
            tx.statement("find_under_way")
            return [row["rebuild_id"] for row in open_rebuilds(self._database, tx)]

    @contextmanager
    def hold(self, rebuild_id: int) -> Iterator[MemoryRebuildWork | None]:
        with self._database.transaction() as tx:
            tx.statement("hold_rebuild")
            record = self._database.rebuilds.primary.records[rebuild_id]
            row = None if tx.is_held(record, NO_KEY_UPDATE) else tx.take(record, lambda row: row["phase"] != "DONE")
            yield None if row is None else MemoryRebuildWork(self._database, tx, row)


class MemoryRebuildWork:
    """RebuildWork over an open transaction that holds the row."""

    def __init__(self, database: MemoryDatabase, tx: Transaction, row: Row) -> None:
        self._database, self._tx = database, tx
        self._record = database.rebuilds.primary.records[row["rebuild_id"]]
        progress = tx.find(database.shard_progress, row["shard"])
        names = [name for name in Rebuild.__dataclass_fields__ if name not in ("phase", "frontier_ms")]
        self.rebuild = Rebuild(
            **{name: row[name] for name in names},
            phase=RebuildPhase(row["phase"]),
            frontier_ms=0 if progress is None else progress["frontier_ms"],
        )

    def live(self, after: Cursor, limit: int) -> Sequence[LiveAlert]:
        return list_live(self._database, self._tx, self.rebuild.shard, after, limit)

    def read(self, alert_ids: Sequence[int]) -> RulePage:
        tx, records = self._tx, self._database.alerts.primary.records

        def wanted(row: Row | None) -> bool:
            return (
                row is not None
                and row["shard"] == self.rebuild.shard
                and row["status"] in ("PENDING", "ACTIVE")
                and self.rebuild.symbol in (None, row["symbol"])
            )

        tx.statement("hold_rules")
        rows = []
        for alert_id in sorted(alert_ids):
            record = records[alert_id]
            if wanted(tx.see(record)) and not tx.is_held(record, SHARE):
                row = tx.lock(record, SHARE)
                rows += [row] if wanted(row) else []
        tx.statement("list_rules")
        held = {row["alert_id"] for row in rows}
        left = [alert_id for alert_id in alert_ids if wanted(tx.see(records[alert_id])) and alert_id not in held]
        times = [row["active_from_event_time_ms"] if row["status"] == "ACTIVE" else 0 for row in rows]
        asserted = [{**row, "active_from_ms": at_ms} for row, at_ms in zip(rows, times, strict=True)]
        page = assert_rules(self.rebuild.rebuild_id, asserted)
        return RulePage(Command(assert_rules=page), len(rows), left)

    def send(self, command: Command, rules: int = 0) -> None:
        self._tx.statement("insert_command")
        payload = command.SerializeToString(deterministic=True)
        values = {"shard": self.rebuild.shard, "action": "rebuild", "payload": payload}
        self._tx.insert(self._database.rule_commands, values)
        self._tx.statement("count_command")
        row = self._tx.lock(self._record, NO_KEY_UPDATE)
        pages = 0 if command.HasField("end_rebuild") else 1
        counted = {"commands": row["commands"] + pages, "asserted": row["asserted"] + rules}
        self._tx.update(self._record, counted)

    def enter(self, phase: RebuildPhase) -> None:
        self._tx.statement("enter_phase")
        ended_at = self._tx.now_ms if phase is RebuildPhase.DONE else None
        self._tx.update(self._record, {"phase": str(phase), "ended_at": ended_at})
