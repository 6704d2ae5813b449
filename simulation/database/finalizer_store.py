"""Finalizer and sweeper in memory: sql/queries/finalizer.sql and sql/finalizer_store.py, query by query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from contracts.frames_pb2 import Direction
from contracts.prices import format_price
from finalizer.domain.batch import Activated, BatchPlan, Claim, ShardProgress
from finalizer.ports import BatchOutcome, Gap, Moves
from simulation.database.engine import MemoryDatabase
from simulation.database.positions import move_positions, read_positions
from simulation.database.schema import LIVE_STATUSES
from simulation.database.table import Record, Row
from simulation.database.transaction import NO_KEY_UPDATE, Transaction

PROGRESS_COLUMNS: Final = tuple(ShardProgress.__dataclass_fields__)
FIRED: Final = {int(value): Direction.Name(value) for value in Direction.values()}


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
        activated = activate_alerts(database, tx, plan.activations) if plan.activations else 0
        triggered: list[int] = []
        refused: list[int] = []
        if plan.claims:
            fired = trigger_alerts(database, tx, plan.claims, finalized_at_ms)
            triggered = [row["alert_id"] for row in fired]
            rest = [claim for claim in plan.claims if claim.candidate.alert_id not in triggered]
            refused = refuse_claims(database, tx, rest) if rest else []
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


def trigger_alerts(
    database: MemoryDatabase, tx: Transaction, claims: Sequence[Claim], finalized_at_ms: int
) -> list[Row]:
    """Alerts that fired, with their evidence, outbox rows and remove commands."""
    tx.statement("trigger_alerts")
    fired = []
    for claim in claims:

        def holds(row: Row, claim: Claim = claim) -> bool:
            given = claim.candidate
            return bool(
                row["status"] == "ACTIVE"
                and row["version"] == given.version
                and row["shard"] == claim.shard
                and row["active_from_event_time_ms"] <= given.event_time_ms < row["expires_at_ms"]
            )

        record = database.alerts.primary.records.get(claim.candidate.alert_id)
        row = None if record is None else tx.take(record, holds)
        if record is not None and row is not None:
            evidence = _evidence(claim, row, finalized_at_ms)
            fired.append(tx.update(record, {"status": "TRIGGERED", "ended_at": finalized_at_ms, "trigger": evidence}))
    write_commands(database, tx, fired, "remove")
    for row in fired:
        trigger_id = f"trg_{row['alert_id']}_{row['inserted_at']:x}"
        payload = _payload(trigger_id, row, row["channel_ids"] or _enabled_channels(database, tx, row["owner_id"]))
        tx.insert(
            database.triggers,
            {
                "trigger_id": trigger_id,
                "alert_id": row["alert_id"],
                "owner_id": row["owner_id"],
                "payload": payload,
            },
        )
    return fired


def _evidence(claim: Claim, row: Row, finalized_at_ms: int) -> Row:
    given, decimals = claim.candidate, row["decimals"]
    evidence = {
        "event_time_ms": given.event_time_ms,
        "sequence": given.sequence or None,
        "session": given.session,
        "price": format_price(given.price_scaled, decimals),
        "window": row["rate_window"],
        "fired": FIRED[given.fired],
        "position": claim.position,
        "epoch": claim.epoch,
        "version": given.version,
        "active_from_event_time_ms": row["active_from_event_time_ms"],
        "finalized_at_ms": finalized_at_ms,
    }
    if row["kind"] == "change":
        evidence["reference_time_ms"] = given.reference_time_ms
        evidence["reference_price"] = format_price(given.reference_price_scaled, decimals)
        evidence["previous_bps"] = given.previous_bps
        evidence["current_bps"] = given.current_bps
    else:
        evidence["previous_event_time_ms"] = given.previous_event_time_ms
        evidence["previous_price"] = format_price(given.previous_price_scaled, decimals)
    return evidence


def _payload(trigger_id: str, row: Row, channel_ids: Sequence[int]) -> Row:
    change = row["kind"] == "change"
    return {
        "trigger_id": trigger_id,
        "alert_id": row["alert_id"],
        "owner_id": row["owner_id"],
        "symbol": row["symbol"],
        "kind": row["kind"],
        "window": row["rate_window"],
        "direction": row["direction"],
        "threshold_bps": row["threshold"] if change else None,
        "target": None if change else format_price(row["threshold"], row["decimals"]),
        "note": row["note"],
        "created_at_ms": row["created_at_ms"],
        "expires_at_ms": row["expires_at_ms"],
        "channel_ids": list(channel_ids),
        "evidence": row["trigger"],
    }


def _enabled_channels(database: MemoryDatabase, tx: Transaction, owner_id: int) -> list[int]:
    rows = [tx.see(record) for record in database.channels.indexes["of_owner"].find(owner_id)]
    return sorted(row["channel_id"] for row in rows if row is not None and row["disabled_at"] is None)


def write_commands(database: MemoryDatabase, tx: Transaction, alerts: Sequence[Row], action: str) -> None:
    """One rule command an alert, in order of alert_id; part of the statement that moved them."""
    for row in sorted(alerts, key=lambda row: int(row["alert_id"])):
        command = {name: row[name] for name in ("shard", "alert_id", "version")}
        tx.insert(database.rule_commands, {**command, "action": action})


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


def refuse_claims(database: MemoryDatabase, tx: Transaction, claims: Sequence[Claim]) -> list[int]:
    """Alerts that are to be installed again."""
    tx.statement("refuse_claims")
    refused = []
    for claim in claims:

        def holds(row: Row, claim: Claim = claim) -> bool:
            return bool(
                row["status"] == "ACTIVE" and row["version"] == claim.candidate.version and row["shard"] == claim.shard
            )

        record = database.alerts.primary.records.get(claim.candidate.alert_id)
        row = None if record is None else tx.take(record, holds)
        if record is not None and row is not None:
            changes = {"active_from_event_time_ms": None, "active_epoch": None, "active_position": None}
            refused.append(tx.update(record, {**changes, "status": "PENDING", "version": row["version"] + 1}))
    write_commands(database, tx, refused, "create")
    return [row["alert_id"] for row in refused]


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
    return any(row is not None and _is_due(row, shard, frontier_ms) for row in rows)


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
        if (row := tx.see(record)) is not None and _is_due(row, shard, frontier_ms)
    ]
    due: list[Record] = []
    for _, _, record in sorted(found, key=lambda place: place[:2]):
        if len(due) == limit:
            break
        if not tx.is_held(record, NO_KEY_UPDATE) and _is_due(tx.lock(record, NO_KEY_UPDATE), shard, frontier_ms):
            due.append(record)
    expired = [tx.update(record, {"status": "EXPIRED", "ended_at": ended_at_ms}) for record in due]
    write_commands(database, tx, expired, "remove")
    return expired


def move_sweep(database: MemoryDatabase, tx: Transaction, shard: str, frontier_ms: int) -> None:
    """Only when nothing that is committed lies behind the frontier any more."""
    tx.statement("move_sweep")
    record = database.shard_progress.primary.records.get(shard)
    if record is None or live_behind(database, tx, shard, frontier_ms):
        return
    if tx.take(record, lambda row: row["swept_ms"] < frontier_ms) is not None:
        tx.update(record, {"swept_ms": frontier_ms})
