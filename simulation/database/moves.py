"""What reshards and rebuilds add to a batch and to the sweep, in memory: sql/protocol_marks.py, sql/routes.py and their
queries, one by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from contracts.frames_pb2 import Routing
from contracts.routes import SymbolRoute
from finalizer.domain.batch import Activated, BatchPlan, Claim, RoutingMarked
from finalizer.domain.rebuild_report import RebuildReport, summed
from simulation.database.engine import MemoryDatabase
from simulation.database.schema import ONLY
from simulation.database.table import Row
from simulation.database.transaction import NO_KEY_UPDATE, SHARE, Transaction

MAX_NAMED_DIFFERENCES: Final = 100
NOT_MOVING: Final = {"moving_to": None, "moving_epoch": None, "moving_position": None}
SUMS: Final = ("reported", "known", "missing", "other_version", "surplus")


def open_phases(database: MemoryDatabase, tx: Transaction) -> set[str]:
    """Of reshards that the statement sees under way."""
    rows = (tx.see(record) for record in database.reshards.indexes["open"].find(ONLY))
    return {row["phase"] for row in rows if row is not None and row["phase"] != "DONE"}


def lock_routes(database: MemoryDatabase, tx: Transaction, symbols: Collection[str]) -> dict[str, SymbolRoute]:
    tx.statement("lock_routes")
    routes = {}
    for symbol in sorted(symbols):
        record = database.instruments.primary.records[symbol]
        row = tx.lock(record, SHARE)
        feed = tx.find(database.feeds, row["feed"])
        assert feed is not None  # a foreign key
        routes[symbol] = SymbolRoute(symbol, row["feed"], feed["buckets"], row["shards"])
    return routes


def is_held(database: MemoryDatabase, tx: Transaction, row: Row) -> bool:
    """Whether a reshard keeps an alert from expiring."""
    if row["moving_to"] is None or row["status"] != "ACTIVE":
        return False
    progress = tx.find(database.shard_progress, row["moving_to"])
    if progress is None or progress["frontier_ms"] < row["expires_at_ms"]:
        return True
    return tx.find(database.parked_claims, (row["alert_id"], row["version"])) is not None


def lock_moving(database: MemoryDatabase, tx: Transaction, claims: Sequence[Claim]) -> set[int]:
    tx.statement("lock_moving")
    if not open_phases(database, tx):
        return set()
    moving = set()
    for alert_id in sorted({claim.candidate.alert_id for claim in claims}):
        record = database.alerts.primary.records.get(alert_id)
        if record is not None and tx.take(record, _moves) is not None:
            moving.add(alert_id)
    return moving


def _moves(row: Row) -> bool:
    return bool(row["status"] == "ACTIVE" and row["moving_to"] is not None)


def park(database: MemoryDatabase, tx: Transaction, claims: Sequence[Claim]) -> None:
    if not claims:
        return
    tx.statement("park_claims")
    for claim in claims:
        given = claim.candidate
        row = tx.find(database.alerts, given.alert_id)
        if row is None or not _moves(row) or (row["version"], row["moving_to"]) != (given.version, claim.shard):
            continue
        values = {"alert_id": given.alert_id, "version": given.version, "shard": claim.shard, "epoch": claim.epoch}
        values |= {"position": claim.position, "candidate": given.SerializeToString()}
        tx.insert_new(database.parked_claims, values)


def acknowledge_moves(database: MemoryDatabase, tx: Transaction, activations: Sequence[Activated]) -> None:
    tx.statement("acknowledge_moves")
    if "COPYING" not in open_phases(database, tx):
        return
    for given in activations:

        def holds(row: Row, given: Activated = given) -> bool:
            if not _moves(row) or row["moving_epoch"] is not None:
                return False
            if (row["version"], row["moving_to"]) != (given.version, given.shard):
                return False
            mark = tx.find(database.routing_marks, (given.shard, row["symbol"], "COPY"))
            return mark is not None and mark["epoch"] == given.epoch and mark["position"] < given.position

        record = database.alerts.primary.records.get(given.alert_id)
        if record is not None and tx.take(record, holds) is not None:
            tx.update(record, {"moving_epoch": given.epoch, "moving_position": given.position})


def write_marks(database: MemoryDatabase, tx: Transaction, plan: BatchPlan) -> None:
    if plan.routing_marks:
        tx.statement("write_routing_marks")
        for marked in plan.routing_marks:
            _write_routing_mark(database, tx, marked)
    if plan.rebuild_marks:
        tx.statement("write_rebuild_marks")
        for report in summed(plan.rebuild_marks):
            _write_rebuild_mark(database, tx, report)


def _write_routing_mark(database: MemoryDatabase, tx: Transaction, marked: RoutingMarked) -> None:
    table, mark = database.routing_marks, marked.mark
    key = {"shard": marked.shard, "symbol": mark.symbol, "phase": Routing.Phase.Name(mark.phase)}
    place = {"version": mark.version, "epoch": marked.epoch, "position": marked.position}
    record = tx.conflicting(table, ("shard", "symbol", "phase"), key)
    if record is None:
        tx.insert(table, {**key, **place})
        return
    row = tx.lock(record, NO_KEY_UPDATE)
    if (mark.version, marked.epoch) > (row["version"], row["epoch"]):
        tx.update(record, place)


def _write_rebuild_mark(database: MemoryDatabase, tx: Transaction, report: RebuildReport) -> None:
    record = database.rebuilds.primary.records.get(report.rebuild_id)
    row = (
        None if record is None else tx.take(record, lambda row: row["shard"] == report.shard and row["phase"] != "DONE")
    )
    if record is None or row is None:
        return
    changes: Row = {name: row[name] + getattr(report, name) for name in SUMS}
    changes |= {"begun": row["begun"] or report.begun, "ended": row["ended"] or report.ended}
    if len(row["differences"]) < MAX_NAMED_DIFFERENCES:
        changes["differences"] = [*row["differences"], *report.differences[:MAX_NAMED_DIFFERENCES]]
    tx.update(record, changes)
