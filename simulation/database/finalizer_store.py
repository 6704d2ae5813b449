"""Finalizer and sweeper in memory: sql/queries/finalizer.sql and sql/finalizer_store.py, query by query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from finalizer.domain.batch import Activated, BatchPlan, ShardProgress
from finalizer.ports import BatchOutcome, Gap, Moves
from simulation.database.claims import apply_claims, write_removes
from simulation.database.engine import MemoryDatabase
from simulation.database.moves import (
    acknowledge_moves,
    is_held,
    lock_moving,
    park,
    write_marks,
)
from simulation.database.positions import move_positions, read_positions
from simulation.database.schema import LIVE_STATUSES
from simulation.database.table import Record, Row
from simulation.database.transaction import NO_KEY_UPDATE, Transaction

PROGRESS_COLUMNS: Final = tuple(ShardProgress.__dataclass_fields__)


class MemoryFinalizerStore:
    """FinalizerStore and SweeperStore."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    def positions(self, topic: str, partitions: int) -> dict[int, int]:
        return read_positions(self._database, topic, partitions)

    @contextmanager
    def advance(self, moves: Moves) -> Iterator[MemoryWork]:
        with self._database.transaction() as tx:
            move_positions(self._database, tx, moves)
            yield MemoryWork(self._database, tx)

    def gaps(self, limit: int) -> tuple[int, Sequence[Gap]]:
        with self._database.transaction() as tx:
            return find_gaps(self._database, tx, limit)

    def shards_due(self, limit: int) -> Sequence[tuple[str, int]]:
        with self._database.transaction() as tx:
            return find_shards_due(self._database, tx, limit)

    def expire(self, shard: str, frontier_ms: int, limit: int, ended_at_ms: int) -> int:
        with self._database.transaction() as tx:
            expired = expire_alerts(self._database, tx, shard, frontier_ms, limit=limit, ended_at_ms=ended_at_ms)
            release_ended(self._database, tx, expired)
            if len(expired) < limit:
                move_sweep(self._database, tx, shard, frontier_ms)
        return len(expired)


class MemoryWork:
    """FinalizerWork over an open transaction."""

    def __init__(self, database: MemoryDatabase, tx: Transaction) -> None:
        self._database, self._tx = database, tx

    def progress(self, shards: Iterable[str]) -> dict[str, ShardProgress]:
        self._tx.statement("read_progress")
        rows = [self._tx.find(self._database.shard_progress, shard) for shard in sorted(set(shards))]
        return {row["shard"]: ShardProgress(*(row[name] for name in PROGRESS_COLUMNS)) for row in rows if row}

    def apply(self, plan: BatchPlan, finalized_at_ms: int) -> BatchOutcome:
        database, tx = self._database, self._tx
        write_marks(database, tx, plan)
        activated = activate_alerts(database, tx, plan.activations) if plan.activations else 0
        if activated < len(plan.activations):
            acknowledge_moves(database, tx, plan.newest_activations)
        triggered: list[int] = []
        refused: list[int] = []
        if plan.claims:
            moving = lock_moving(database, tx, plan.claims)
            fired, refused = apply_claims(database, tx, plan.claims, finalized_at_ms)
            triggered = [row["alert_id"] for row in fired]
            park(database, tx, [claim for claim in plan.claims if claim.candidate.alert_id in moving])
            release_ended(database, tx, fired)
        if plan.progress:
            write_progress(database, tx, plan.progress)
        return BatchOutcome(activated, triggered, refused)


def write_progress(database: MemoryDatabase, tx: Transaction, progress: Sequence[ShardProgress]) -> None:
    tx.statement("write_progress")
    table = database.shard_progress
    for shard in progress:
        values = {name: getattr(shard, name) for name in PROGRESS_COLUMNS}
        record = tx.conflicting(table, ("shard",), values)
        if record is None:
            tx.insert(table, values)
        else:
            tx.lock(record, NO_KEY_UPDATE)
            tx.update(record, {**values, "updated_at": tx.now_ms})


def find_gaps(database: MemoryDatabase, tx: Transaction, limit: int) -> tuple[int, list[Gap]]:
    """How many there are, and the longest standing."""
    tx.statement("find_gaps")
    rows = [row for row in tx.rows(database.shard_progress) if row["gap"] is not None]
    rows.sort(key=lambda row: (row["updated_at"], row["shard"]))
    return len(rows), [Gap(row["shard"], row["gap"], row["updated_at"]) for row in rows[:limit]]


def activate_alerts(database: MemoryDatabase, tx: Transaction, activations: Sequence[Activated]) -> int:
    """How many became ACTIVE."""
    tx.statement("activate_alerts")
    count = 0
    for activated in activations:

        def holds(row: Row, given: Activated = activated) -> bool:
            return bool(row["status"] == "PENDING" and row["version"] == given.version and row["shard"] == given.shard)

        record = database.alerts.primary.records.get(activated.alert_id)
        if record is None or tx.take(record, holds) is None:
            continue
        tx.update(
            record,
            {
                "status": "ACTIVE",
                "active_from_event_time_ms": activated.active_from_event_time_ms,
                "active_epoch": activated.epoch,
                "active_position": activated.position,
            },
        )
        count += 1
    return count


def release_ended(database: MemoryDatabase, tx: Transaction, ended: Sequence[Row]) -> None:
    """Count down the owners of ended alerts."""
    places = Counter(row["owner_id"] for row in ended)
    if places:
        release_places(database, tx, places)


def release_places(database: MemoryDatabase, tx: Transaction, places: Counter[int]) -> None:
    tx.statement("release_places")
    records = database.owners.primary.records
    held = [records[owner_id] for owner_id in sorted(places) if owner_id in records]
    for record in held:
        tx.lock(record, NO_KEY_UPDATE)
    for record in held:
        row = tx.lock(record, NO_KEY_UPDATE)
        tx.update(record, {"live_alerts": row["live_alerts"] - places[row["owner_id"]]})


def find_shards_due(database: MemoryDatabase, tx: Transaction, limit: int) -> list[tuple[str, int]]:
    tx.statement("find_shards_due")
    due = [
        (row["swept_ms"], row["shard"], row["frontier_ms"])
        for row in tx.rows(database.shard_progress)
        if row["swept_ms"] < row["frontier_ms"] or live_behind(database, tx, row["shard"], row["frontier_ms"])
    ]
    return [(shard, frontier_ms) for _, shard, frontier_ms in sorted(due)[:limit]]


def live_behind(database: MemoryDatabase, tx: Transaction, shard: str, frontier_ms: int) -> bool:
    """Whether a live alert of the shard has ended by the frontier."""
    rows = (tx.see(record) for record in database.alerts.indexes["live_of_shard"].find(shard))
    return any(row is not None and _is_due(row, shard, frontier_ms) and not is_held(database, tx, row) for row in rows)


def _is_due(row: Row, shard: str, frontier_ms: int) -> bool:
    return bool(row["shard"] == shard and row["expires_at_ms"] <= frontier_ms and row["status"] in LIVE_STATUSES)


def expire_alerts(
    database: MemoryDatabase, tx: Transaction, shard: str, frontier_ms: int, *, limit: int, ended_at_ms: int
) -> list[Row]:
    """Those that ended, the earliest first; rows that somebody holds are left to him."""
    tx.statement("expire_alerts")
    found = [
        (row["expires_at_ms"], record.number, record)
        for record in database.alerts.indexes["live_of_shard"].find(shard)
        if (row := tx.see(record)) is not None and _is_due(row, shard, frontier_ms) and not is_held(database, tx, row)
    ]
    due: list[Record] = []
    for _, _, record in sorted(found, key=lambda place: place[:2]):
        if len(due) == limit:
            break
        if tx.is_held(record, NO_KEY_UPDATE):
            continue
        newest = tx.lock(record, NO_KEY_UPDATE)
        if _is_due(newest, shard, frontier_ms) and not is_held(database, tx, newest):
            due.append(record)
    expired = [tx.update(record, {"status": "EXPIRED", "ended_at": ended_at_ms}) for record in due]
    write_removes(database, tx, expired)
    return expired


def move_sweep(database: MemoryDatabase, tx: Transaction, shard: str, frontier_ms: int) -> None:
    """Only when nothing that is committed lies behind the frontier any more."""
    tx.statement("move_sweep")
    record = database.shard_progress.primary.records.get(shard)
    if record is None or live_behind(database, tx, shard, frontier_ms):
        return
    if tx.take(record, lambda row: row["swept_ms"] < frontier_ms) is not None:
        tx.update(record, {"swept_ms": frontier_ms})
