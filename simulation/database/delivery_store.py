"""The notifier's ledger in memory: sql/queries/deliveries.sql and sql/delivery_store.py, query by query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from finalizer.channels.outcome import Delivery, Result
from finalizer.ports import Moves, NewDelivery, Settled
from simulation.database.engine import MemoryDatabase
from simulation.database.positions import move_positions, read_positions
from simulation.database.schema import ONLY, OPEN_DELIVERIES
from simulation.database.table import Record, Row
from simulation.database.transaction import NO_KEY_UPDATE, Transaction

STATUSES: Final = {Result.DELIVERED: "DELIVERED", Result.DEAD: "DEAD", Result.RETRY: "PENDING"}


class MemoryDeliveryStore:
    """DeliveryStore."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    def positions(self, topic: str, partitions: int) -> dict[int, int]:
        return read_positions(self._database, topic, partitions)

    def accept(self, moves: Moves, deliveries: Sequence[NewDelivery], now_ms: int) -> int:
        with self._database.transaction() as tx:
            move_positions(self._database, tx, moves)
            return insert_deliveries(self._database, tx, deliveries, now_ms)

    def claim(self, limit: int, now_ms: int, lease_ms: int) -> Sequence[Delivery]:
        with self._database.transaction() as tx:
            return claim_deliveries(self._database, tx, limit, now_ms, lease_ms)

    def settle(self, settled: Sequence[Settled], now_ms: int) -> int:
        with self._database.transaction() as tx:
            count = settle_deliveries(self._database, tx, settled, now_ms)
            gone = [s.delivery.channel_id for s in settled if s.disable_channel]
            if gone:
                disable_channels(self._database, tx, gone, now_ms)
        return count


def insert_deliveries(database: MemoryDatabase, tx: Transaction, deliveries: Sequence[NewDelivery], now_ms: int) -> int:
    """Only channels of the trigger's own owner. What is there already stays: the log repeats."""
    tx.statement("insert_deliveries")
    wanted: list[Row] = []
    for new in deliveries:
        trigger = tx.find(database.triggers, new.trigger_id)
        if trigger is None or trigger["owner_id"] != new.owner_id:
            continue
        for channel_id in new.channel_ids:
            channel = tx.find(database.channels, channel_id)
            if channel is None or channel["owner_id"] != new.owner_id:
                continue
            alive = channel["disabled_at"] is None
            wanted.append(
                {
                    "trigger_id": new.trigger_id,
                    "channel_id": channel_id,
                    "owner_id": new.owner_id,
                    "body": new.body,
                    "status": "PENDING" if alive else "DEAD",
                    "last_error": None if alive else "the channel is disabled",
                    "next_attempt_at": now_ms,
                }
            )
    wanted.sort(key=lambda row: (row["trigger_id"], row["channel_id"]))
    return sum(tx.insert_new(database.deliveries, row) is not None for row in wanted)


def claim_deliveries(
    database: MemoryDatabase, tx: Transaction, limit: int, now_ms: int, lease_ms: int
) -> list[Delivery]:
    """What has been due for longest; rows that another notifier holds are left to it."""
    tx.statement("claim_deliveries")
    found: list[tuple[int, int, Record]] = [
        (row["next_attempt_at"], record.number, record)
        for record in database.deliveries.indexes["due"].find(ONLY)
        if (row := tx.see(record)) is not None and row["status"] in OPEN_DELIVERIES and row["next_attempt_at"] <= now_ms
    ]
    claimed: list[Delivery] = []
    for _, _, record in sorted(found, key=lambda place: place[:2]):
        if len(claimed) == limit:
            break
        if tx.is_held(record, NO_KEY_UPDATE):
            continue
        row = tx.lock(record, NO_KEY_UPDATE)
        row = tx.update(
            record,
            {
                "status": "SENDING",
                "attempts": row["attempts"] + 1,
                "token": row["token"] + 1,
                "next_attempt_at": now_ms + lease_ms,
            },
        )
        channel = tx.find(database.channels, row["channel_id"])
        assert channel is not None  # a foreign key, and no channel is ever deleted
        claimed.append(
            Delivery(
                trigger_id=row["trigger_id"],
                channel_id=row["channel_id"],
                owner_id=row["owner_id"],
                kind=channel["kind"],
                address=channel["address"],
                secret=channel["secret"],
                body=row["body"],
                attempts=row["attempts"],
                token=row["token"],
                disabled=channel["disabled_at"] is not None,
            )
        )
    return claimed


def settle_deliveries(database: MemoryDatabase, tx: Transaction, settled: Sequence[Settled], now_ms: int) -> int:
    """How many results came under a token that still held."""
    tx.statement("settle_deliveries")
    count = 0
    for given in settled:

        def holds(row: Row, token: int = given.delivery.token) -> bool:
            return bool(row["token"] == token and row["status"] == "SENDING")

        record = database.deliveries.primary.records.get((given.delivery.trigger_id, given.delivery.channel_id))
        if record is None or tx.take(record, holds) is None:
            continue
        tx.update(
            record,
            {
                "status": STATUSES[given.result],
                "last_error": given.reason or None,
                "next_attempt_at": given.next_attempt_ms,
                "delivered_at": now_ms if given.result is Result.DELIVERED else None,
            },
        )
        count += 1
    return count


def disable_channels(database: MemoryDatabase, tx: Transaction, channel_ids: Sequence[int], now_ms: int) -> None:
    tx.statement("disable_channels")
    for channel_id in channel_ids:
        record = database.channels.primary.records.get(channel_id)
        if record is not None and tx.take(record, lambda row: row["disabled_at"] is None) is not None:
            tx.update(record, {"disabled_at": now_ms})
