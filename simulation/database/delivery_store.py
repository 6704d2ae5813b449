"""The notifier's ledger in memory: sql/queries/deliveries.sql and sql/delivery_store.py, query by query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from finalizer.channels.outcome import Delivery, Result
from finalizer.owner_turns import CROWD_ROWS, MAX_SENDS_AN_OWNER, OwnerTurns
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
        self._turns = OwnerTurns()

    def positions(self, topic: str, partitions: int) -> dict[int, int]:
        return read_positions(self._database, topic, partitions)

    def accept(self, moves: Moves, deliveries: Sequence[NewDelivery], now_ms: int) -> int:
        with self._database.transaction() as tx:
            move_positions(self._database, tx, moves)
            return insert_deliveries(self._database, tx, deliveries, now_ms)

    def claim(
        self, limit: int, now_ms: int, lease_ms: int, owner_limit: int = MAX_SENDS_AN_OWNER
    ) -> Sequence[Delivery]:
        database, terms = self._database, Terms(limit, now_ms, lease_ms, owner_limit)
        with database.transaction() as tx:
            claimed = claim_deliveries(database, tx, terms)
            if claimed:
                return claimed
            owners = self._turns.next_owners(
                lambda after_owner_id, most: find_owners_in_turn(database, tx, now_ms, after_owner_id, most)
            )
            if owners:
                claimed = claim_deliveries_of_owners(database, tx, owners, terms)
                self._turns.go_on(owners, [delivery.owner_id for delivery in claimed], full=len(claimed) == limit)
            return claimed

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


class Terms(NamedTuple):
    """Of a claim."""

    limit: int
    now_ms: int
    lease_ms: int
    owner_limit: int


def claim_deliveries(database: MemoryDatabase, tx: Transaction, terms: Terms) -> list[Delivery]:
    """Owners with the fewest claims first, then what has been due for longest; nothing in a crowd."""
    tx.statement("claim_deliveries")
    due, busy = _due_and_busy(database, tx, terms.now_ms)
    if len(due) >= CROWD_ROWS:
        return []
    ranked = []
    for row, record in due:
        busy[row["owner_id"]] += 1
        if busy[row["owner_id"]] <= terms.owner_limit:
            ranked.append(((busy[row["owner_id"]], *_age(row)), record))
    ranked.sort(key=lambda place: place[0])
    return _claim(database, tx, [record for _, record in ranked], terms)


def find_owners_in_turn(
    database: MemoryDatabase, tx: Transaction, now_ms: int, after_owner_id: int, limit: int
) -> list[int]:
    tx.statement("find_owners_in_turn")
    if len(_due_and_busy(database, tx, now_ms)[0]) < CROWD_ROWS:
        return []
    owners = {
        row["owner_id"]
        for record in database.deliveries.indexes["due"].find(ONLY)
        if (row := tx.see(record)) is not None and row["status"] in OPEN_DELIVERIES
    }
    return sorted(owner_id for owner_id in owners if owner_id > after_owner_id)[:limit]


def claim_deliveries_of_owners(
    database: MemoryDatabase, tx: Transaction, owner_ids: Sequence[int], terms: Terms
) -> list[Delivery]:
    tx.statement("claim_deliveries_of_owners")
    due, busy = _due_and_busy(database, tx, terms.now_ms)
    records = []
    for owner_id in owner_ids:
        oldest = [record for row, record in due if row["owner_id"] == owner_id]
        records += oldest[: max(0, terms.owner_limit - busy[owner_id])]
    return _claim(database, tx, records, terms)


def _due_and_busy(
    database: MemoryDatabase, tx: Transaction, now_ms: int
) -> tuple[list[tuple[Row, Record]], Counter[int]]:
    """What is due, the oldest first; owners' claims whose lease lasts."""
    found = [
        (row, record)
        for record in database.deliveries.indexes["due"].find(ONLY)
        if (row := tx.see(record)) is not None and row["status"] in OPEN_DELIVERIES
    ]
    due = sorted((pair for pair in found if pair[0]["next_attempt_at"] <= now_ms), key=lambda pair: _age(pair[0]))
    busy = Counter(
        row["owner_id"] for row, _ in found if row["status"] == "SENDING" and row["next_attempt_at"] > now_ms
    )
    return due, busy


def _age(row: Row) -> tuple[int, str, int]:
    return row["next_attempt_at"], row["trigger_id"], row["channel_id"]


def _claim(database: MemoryDatabase, tx: Transaction, records: Sequence[Record], terms: Terms) -> list[Delivery]:
    """In this order; rows that another notifier holds are left to it."""

    def is_due(row: Row) -> bool:
        return bool(row["status"] in OPEN_DELIVERIES and row["next_attempt_at"] <= terms.now_ms)

    claimed: list[Delivery] = []
    for record in records:
        if len(claimed) == terms.limit:
            break
        row = None if tx.is_held(record, NO_KEY_UPDATE) else tx.take(record, is_due)
        if row is None:
            continue
        row = tx.update(
            record,
            {
                "status": "SENDING",
                "attempts": row["attempts"] + 1,
                "token": row["token"] + 1,
                "next_attempt_at": terms.now_ms + terms.lease_ms,
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
