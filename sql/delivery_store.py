"""The notifier's ledger in Postgres (finalizer/ports.py has the contract)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from finalizer.channels.outcome import Delivery, Result
from finalizer.owner_turns import CROWD_ROWS, MAX_SENDS_AN_OWNER, OwnerTurns
from finalizer.ports import Moves, NewDelivery, Settled
from sql.connection import Pool, transaction
from sql.finalizer_store import move_positions, read_positions
from sql.named import load_queries

QUERIES: Final = load_queries("deliveries")
STATUSES: Final = {Result.DELIVERED: "DELIVERED", Result.DEAD: "DEAD", Result.RETRY: "PENDING"}


class PostgresDeliveryStore:
    """DeliveryStore."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._turns = OwnerTurns()

    def positions(self, topic: str, partitions: int) -> dict[int, int]:
        return read_positions(self._pool, topic, partitions)

    def accept(self, moves: Moves, deliveries: Sequence[NewDelivery], now_ms: int) -> int:
        pairs = [(new, channel_id) for new in deliveries for channel_id in new.channel_ids]
        with transaction(self._pool) as connection:
            move_positions(connection, moves)
            count: int = QUERIES.insert_deliveries(
                connection,
                now_ms=now_ms,
                trigger_ids=[new.trigger_id for new, _ in pairs],
                owner_ids=[new.owner_id for new, _ in pairs],
                channel_ids=[channel_id for _, channel_id in pairs],
                bodies=[new.body for new, _ in pairs],
            )
        return count

    def claim(
        self, limit: int, now_ms: int, lease_ms: int, owner_limit: int = MAX_SENDS_AN_OWNER
    ) -> Sequence[Delivery]:
        given = {"limit": limit, "now_ms": now_ms, "lease_ms": lease_ms, "owner_limit": owner_limit}
        with transaction(self._pool) as connection:
            rows = list(QUERIES.claim_deliveries(connection, crowd=CROWD_ROWS, **given))
            if rows:
                return [Delivery(**row) for row in rows]

            def find(after_owner_id: int, most: int) -> list[int]:
                found = QUERIES.find_owners_in_turn(
                    connection, crowd=CROWD_ROWS, now_ms=now_ms, after_owner_id=after_owner_id, limit=most
                )
                return [row["owner_id"] for row in found]

            owners = self._turns.next_owners(find)
            if owners:
                rows = list(QUERIES.claim_deliveries_of_owners(connection, owner_ids=owners, **given))
                self._turns.go_on(owners, [row["owner_id"] for row in rows], full=len(rows) == limit)
            return [Delivery(**row) for row in rows]

    def settle(self, settled: Sequence[Settled], now_ms: int) -> int:
        with transaction(self._pool) as connection:
            count: int = QUERIES.settle_deliveries(
                connection,
                now_ms=now_ms,
                trigger_ids=[s.delivery.trigger_id for s in settled],
                channel_ids=[s.delivery.channel_id for s in settled],
                tokens=[s.delivery.token for s in settled],
                statuses=[STATUSES[s.result] for s in settled],
                errors=[s.reason or None for s in settled],
                next_attempts_ms=[s.next_attempt_ms for s in settled],
            )
            gone = [s.delivery.channel_id for s in settled if s.disable_channel]
            if gone:
                QUERIES.disable_channels(connection, now_ms=now_ms, channel_ids=gone)
        return count
