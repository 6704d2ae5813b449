"""An owner's alerts in memory: sql/queries/alerts.sql and sql/alert_store.py, query by query."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from api.ports import (
    EXPIRING,
    AlertFilter,
    AlertRecord,
    FeedFrontier,
    IdempotencyKeyTakenError,
    InstrumentRoute,
    NewAlert,
)
from contracts.vocabulary import Status
from simulation.database.claims import write_commands, write_removes
from simulation.database.engine import MemoryDatabase
from simulation.database.errors import UniqueViolationError
from simulation.database.moves import NOT_MOVING, lock_routes
from simulation.database.schema import LIVE_STATUSES
from simulation.database.table import Row
from simulation.database.transaction import NO_KEY_UPDATE, SHARE, Transaction

BUCKET_SHARD: Final = re.compile(r"[^/]+/[0-9]+~")
MAX_DELIVERIES: Final = 100
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryAlertStore:
    """AlertStore."""

    def __init__(self, database: MemoryDatabase, tx: Transaction) -> None:
        self._database, self._tx = database, tx

    def find_instrument(self, spellings: list[str]) -> InstrumentRoute | None:
        return find_instrument(self._database, self._tx, spellings)

    def resolve_symbol(self, spellings: list[str]) -> str | None:
        self._tx.statement("resolve_symbol")
        return next((s for s in spellings if self._tx.find(self._database.instruments, s) is not None), None)

    def feed_frontiers(self) -> list[FeedFrontier]:
        database, tx = self._database, self._tx
        tx.statement("read_feed_clocks")
        rows = sorted(tx.rows(database.feeds), key=lambda row: str(row["feed"]))
        return [FeedFrontier(row["feed"], row["clock_mode"], _frontier_ms(database, tx, row["feed"])) for row in rows]

    def insert(self, alert: NewAlert) -> AlertRecord | None:
        try:
            row = insert_alert(self._database, self._tx, alert)
        except UniqueViolationError as error:
            if error.table == "idempotency_keys":
                raise IdempotencyKeyTakenError from None
            raise
        return None if row is None else _record(row, row["status"])

    def find_idempotent(self, owner_id: int, idempotency_key: str) -> tuple[bytes, int] | None:
        self._tx.statement("find_idempotent_request")
        row = self._tx.find(self._database.idempotency_keys, (owner_id, idempotency_key))
        return (row["request_hash"], row["alert_id"]) if row else None

    def find(self, owner_id: int, alert_id: int, clocks_ms: Mapping[str, int]) -> AlertRecord | None:
        self._tx.statement("find_alert")
        row = self._tx.find(self._database.alerts, alert_id)
        if row is None or row["owner_id"] != owner_id:
            return None
        return _record(row, self._shown_status(row, clocks_ms))

    def page(
        self, owner_id: int, shown: AlertFilter, before_alert_id: int, limit: int, clocks_ms: Mapping[str, int]
    ) -> list[AlertRecord]:
        self._tx.statement("list_alerts")
        found = [
            _record(row, status)
            for row in self._tx.rows(self._database.alerts)
            if row["owner_id"] == owner_id
            and row["alert_id"] < before_alert_id
            and shown.symbol in (None, row["symbol"])
            and shown.status in (None, status := self._shown_status(row, clocks_ms))
        ]
        return sorted(found, key=lambda alert: -alert.alert_id)[:limit]

    def _shown_status(self, row: Row, clocks_ms: Mapping[str, int]) -> str:
        status: str = row["status"]
        if status not in LIVE_STATUSES:
            return status
        instrument = self._tx.find(self._database.instruments, row["symbol"])
        now_ms = None if instrument is None else clocks_ms.get(instrument["feed"])
        return EXPIRING if now_ms is not None and row["expires_at_ms"] <= now_ms else status

    def statuses(self, alert_ids: Collection[int]) -> dict[int, Status]:
        self._tx.statement("read_statuses")
        rows = (self._tx.find(self._database.alerts, alert_id) for alert_id in alert_ids)
        return {row["alert_id"]: Status(row["status"]) for row in rows if row is not None}

    def cancel(self, owner_id: int, alert_id: int, from_statuses: Collection[Status]) -> bool:
        return cancel_alert(self._database, self._tx, owner_id, alert_id, from_statuses)

    def pause(self, owner_id: int, alert_id: int, from_statuses: Collection[Status]) -> bool:
        return pause_alert(self._database, self._tx, owner_id, alert_id, from_statuses)

    def resume(self, owner_id: int, alert_id: int, from_statuses: Collection[Status]) -> bool:
        return resume_alert(self._database, self._tx, owner_id, alert_id, from_statuses)

    def deliveries(self, owner_id: int, alert_id: int) -> list[Row]:
        return list_deliveries(self._database, self._tx, owner_id, alert_id)


def find_instrument(database: MemoryDatabase, tx: Transaction, spellings: Sequence[str]) -> InstrumentRoute | None:
    """Its routing locked FOR SHARE. All else is of the statement's snapshot, even after a wait for the lock."""
    tx.statement("find_instrument")
    found = (database.instruments.primary.records.get(symbol) for symbol in spellings)
    record = next((record for record in found if record is not None and tx.see(record) is not None), None)
    if record is None:
        return None
    next_alert_id = database.alerts.next_identity()
    seen = tx.see(record)
    row = tx.lock(record, SHARE)
    if row is not seen:  # a row that has changed is computed again, the sequence's next value too
        next_alert_id = database.alerts.next_identity()
    feed = tx.find(database.feeds, row["feed"])
    assert feed is not None  # a foreign key
    return InstrumentRoute(
        symbol=row["symbol"],
        feed=row["feed"],
        decimals=row["decimals"],
        shards=row["shards"],
        buckets=feed["buckets"],
        clock_mode=feed["clock_mode"],
        frontier_ms=_frontier_ms(database, tx, row["feed"]),
        next_alert_id=next_alert_id,
    )


def _frontier_ms(database: MemoryDatabase, tx: Transaction, feed: str) -> int | None:
    """The least of the feed's bucket shards that have one."""
    prefix = feed + "/"
    frontiers = [
        row["frontier_ms"]
        for row in tx.rows(database.shard_progress)
        if row["frontier_ms"] > 0 and row["shard"].startswith(prefix) and BUCKET_SHARD.match(row["shard"])
    ]
    return min(frontiers, default=None)


def insert_alert(database: MemoryDatabase, tx: Transaction, alert: NewAlert) -> Row | None:
    """The row; None: the owner's quota is used up. Raises UniqueViolationError: the idempotency key is taken."""
    tx.statement("insert_alert")
    owner = database.owners.primary.records.get(alert.owner_id)
    owner_row = None if owner is None else tx.take(owner, lambda row: row["live_alerts"] < row["max_live_alerts"])
    if owner is None or owner_row is None:
        return None
    tx.update(owner, {"live_alerts": owner_row["live_alerts"] + 1})
    splits = [tx.see(record) for record in database.splits.indexes["of_symbol"].find(alert.symbol)]
    row = tx.insert(
        database.alerts,
        {
            "alert_id": alert.alert_id,
            "owner_id": alert.owner_id,
            "symbol": alert.symbol,
            "shard": alert.shard,
            "kind": alert.kind,
            "rate_window": alert.window,
            "direction": alert.direction,
            "threshold": alert.threshold,
            "decimals": alert.decimals,
            "note": alert.note,
            "channel_ids": list(alert.channel_ids),
            "created_at_ms": alert.created_at_ms,
            "expires_at_ms": alert.expires_at_ms,
            "series_version": sum(s is not None and s["effective_from_ms"] <= alert.created_at_ms for s in splits),
            "status": "PENDING",
        },
    )
    if alert.idempotency_key is not None:
        key = {"owner_id": alert.owner_id, "key": alert.idempotency_key, "request_hash": alert.request_hash}
        tx.insert(database.idempotency_keys, {**key, "alert_id": alert.alert_id})
    write_commands(database, tx, [row], "create")
    return row


def cancel_alert(
    database: MemoryDatabase, tx: Transaction, owner_id: int, alert_id: int, from_statuses: Collection[Status]
) -> bool:
    tx.statement("cancel_alert")
    ended = _move(
        database, tx, owner_id, alert_id, from_statuses, changes={"status": "CANCELLED", "ended_at": tx.now_ms}
    )
    if ended is None:
        return False
    owner = database.owners.primary.records[owner_id]
    tx.update(owner, {"live_alerts": tx.lock(owner, NO_KEY_UPDATE)["live_alerts"] - 1})
    write_removes(database, tx, [ended])
    return True


def pause_alert(
    database: MemoryDatabase, tx: Transaction, owner_id: int, alert_id: int, from_statuses: Collection[Status]
) -> bool:
    tx.statement("pause_alert")
    inactive = {"active_from_event_time_ms": None, "active_epoch": None, "active_position": None}
    paused = _move(database, tx, owner_id, alert_id, from_statuses, changes={**inactive, "status": "PAUSED"})
    if paused is None:
        return False
    write_removes(database, tx, [paused])
    return True


def resume_alert(
    database: MemoryDatabase, tx: Transaction, owner_id: int, alert_id: int, from_statuses: Collection[Status]
) -> bool:
    tx.statement("lock_alert")
    record = database.alerts.primary.records.get(alert_id)
    row = None if record is None else tx.take(record, lambda row: row["owner_id"] == owner_id)
    if row is None:
        return False
    shard = lock_routes(database, tx, {row["symbol"]})[row["symbol"]].shard_of(alert_id)
    tx.statement("resume_alert")
    changes = {"status": "PENDING", "shard": shard, **NOT_MOVING}
    resumed = _move(database, tx, owner_id, alert_id, from_statuses, changes=changes, raised=1)
    if resumed is None:
        return False
    write_commands(database, tx, [resumed], "create")
    return True


def _move(
    database: MemoryDatabase,
    tx: Transaction,
    owner_id: int,
    alert_id: int,
    from_statuses: Collection[Status],
    *,
    changes: Row,
    raised: int = 0,
) -> Row | None:
    """An owner's alert out of one of these statuses, its version raised; None: nothing moved."""
    record = database.alerts.primary.records.get(alert_id)
    row = (
        None
        if record is None
        else tx.take(record, lambda row: row["owner_id"] == owner_id and row["status"] in from_statuses)
    )
    if record is None or row is None:
        return None
    return tx.update(record, {**changes, "version": row["version"] + raised})


def list_deliveries(database: MemoryDatabase, tx: Transaction, owner_id: int, alert_id: int) -> list[Row]:
    tx.statement("list_deliveries")
    trigger = database.triggers.keys[1].records.get(alert_id)
    trigger_row = None if trigger is None else tx.see(trigger)
    if trigger_row is None or trigger_row["owner_id"] != owner_id:
        return []
    rows = (tx.see(record) for record in database.deliveries.indexes["of_trigger"].find(trigger_row["trigger_id"]))
    found = []
    for row in rows:
        channel = None if row is None else tx.find(database.channels, row["channel_id"])
        if row is not None and channel is not None:
            shown = {name: row[name] for name in ("trigger_id", "channel_id", "status", "attempts", "last_error")}
            times = {name: as_time(row[name]) for name in ("next_attempt_at", "delivered_at", "created_at")}
            found.append({**shown, **times, "kind": channel["kind"], "address": channel["address"]})
    return sorted(found, key=lambda row: int(row["channel_id"]))[:MAX_DELIVERIES]


def as_time(ms: int | None) -> datetime | None:
    """A timestamptz as psycopg gives it."""
    return None if ms is None else EPOCH + timedelta(milliseconds=ms)


def _record(row: Row, shown_status: str) -> AlertRecord:
    return AlertRecord(
        alert_id=row["alert_id"],
        owner_id=row["owner_id"],
        symbol=row["symbol"],
        kind=row["kind"],
        window=row["rate_window"],
        direction=row["direction"],
        threshold=row["threshold"],
        decimals=row["decimals"],
        note=row["note"],
        channel_ids=list(row["channel_ids"]),
        created_at_ms=row["created_at_ms"],
        expires_at_ms=row["expires_at_ms"],
        series_version=row["series_version"],
        status=Status(row["status"]),
        shown_status=shown_status,
        version=row["version"],
        active_from_event_time_ms=row["active_from_event_time_ms"],
        ended_at=as_time(row["ended_at"]),
        trigger=row["trigger"],
    )
