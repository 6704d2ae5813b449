"""Finalizer, sweeper and positions in Postgres (finalizer/ports.py has the contract)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from psycopg import Connection

from contracts.frames_pb2 import Direction
from finalizer.domain.batch import Activated, BatchPlan, Claim, ShardProgress
from finalizer.ports import BatchOutcome, Gap, Moves, PartitionCountError, PositionsMovedError
from sql.connection import Pool, Row, transaction
from sql.named import load_queries
from sql.protocol_marks import acknowledge_moves, lock_moving, park, write_marks
from sql.routes import lock_routes

QUERIES: Final = load_queries("finalizer")
PROGRESS_COLUMNS: Final = tuple(ShardProgress.__dataclass_fields__)
FIRED: Final = {
    Direction.UP: "UP",
    Direction.DOWN: "DOWN",
    Direction.ABOVE: "ABOVE",
    Direction.BELOW: "BELOW",
}


def read_positions(pool: Pool, topic: str, partitions: int) -> dict[int, int]:
    """Partition -> next offset; written as 0 when the topic was never read. Raises PartitionCountError."""
    with transaction(pool) as connection:
        QUERIES.open_positions(connection, topic=topic, partitions=partitions)
        rows = {row["partition"]: row["next_offset"] for row in QUERIES.read_positions(connection, topic=topic)}
    if len(rows) != partitions:
        raise PartitionCountError(topic, len(rows), partitions)
    return rows


def move_positions(connection: Connection[Row], moves: Moves) -> None:
    """Inside a transaction: lock the partitions' positions, check that they are where the batch was read from, move
    them. Raises PositionsMovedError."""
    partitions = sorted(moves.offsets)
    rows = QUERIES.lock_positions(connection, topic=moves.topic, partitions=partitions)
    found = {row["partition"]: row["next_offset"] for row in rows}
    if found != {partition: read_from for partition, (read_from, _) in moves.offsets.items()}:
        raise PositionsMovedError(moves.topic)
    next_offsets = [moves.offsets[partition][1] for partition in partitions]
    QUERIES.move_positions(connection, topic=moves.topic, partitions=partitions, next_offsets=next_offsets)


class PostgresFinalizerStore:
    """FinalizerStore and SweeperStore."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def positions(self, topic: str, partitions: int) -> dict[int, int]:
        return read_positions(self._pool, topic, partitions)

    @contextmanager
    def advance(self, moves: Moves) -> Iterator[PostgresWork]:
        with transaction(self._pool) as connection:
            move_positions(connection, moves)
            yield PostgresWork(connection)

    def gaps(self, limit: int) -> tuple[int, Sequence[Gap]]:
        with transaction(self._pool) as connection:
            rows = list(QUERIES.find_gaps(connection, limit=limit))
        return rows[0]["shards"] if rows else 0, [Gap(row["shard"], row["what"], row["since_ms"]) for row in rows]

    def shards_due(self, limit: int) -> Sequence[tuple[str, int]]:
        with transaction(self._pool) as connection:
            return [(row["shard"], row["frontier_ms"]) for row in QUERIES.find_shards_due(connection, limit=limit)]

    def expire(self, shard: str, frontier_ms: int, limit: int, ended_at_ms: int) -> int:
        with transaction(self._pool) as connection:
            expired = list(
                QUERIES.expire_alerts(
                    connection, shard=shard, frontier_ms=frontier_ms, limit=limit, ended_at_ms=ended_at_ms
                )
            )
            release_places(connection, expired)
            if len(expired) < limit:
                QUERIES.move_sweep(connection, shard=shard, frontier_ms=frontier_ms)
        return len(expired)


class PostgresWork:
    """FinalizerWork over an open transaction."""

    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection

    def progress(self, shards: Iterable[str]) -> dict[str, ShardProgress]:
        rows = QUERIES.read_progress(self._connection, shards=list(shards))
        return {row["shard"]: ShardProgress(**row) for row in rows}

    def apply(self, plan: BatchPlan, finalized_at_ms: int) -> BatchOutcome:
        write_marks(self._connection, plan)
        activated = self._activate(plan.activations) if plan.activations else 0
        if activated < len(plan.activations):
            acknowledge_moves(self._connection, plan.newest_activations)
        triggered: list[int] = []
        refused: list[int] = []
        if plan.claims:
            moving = lock_moving(self._connection, plan.claims)
            ended, refused = apply_claims(self._connection, plan.claims, finalized_at_ms)
            triggered = [row["alert_id"] for row in ended]
            park(self._connection, [claim for claim in plan.claims if claim.candidate.alert_id in moving])
            release_places(self._connection, ended)
        if plan.progress:
            columns = {name: [getattr(p, name) for p in plan.progress] for name in PROGRESS_COLUMNS}
            QUERIES.write_progress(self._connection, **columns)
        return BatchOutcome(activated, triggered, refused)

    def _activate(self, activations: list[Activated]) -> int:
        count: int = QUERIES.activate_alerts(
            self._connection,
            shard=[a.shard for a in activations],
            alert_id=[a.alert_id for a in activations],
            version=[a.version for a in activations],
            active_from_ms=[a.active_from_event_time_ms for a in activations],
            epoch=[a.epoch for a in activations],
            position=[a.position for a in activations],
        )
        return count


def apply_claims(
    connection: Connection[Row], claims: Sequence[Claim], finalized_at_ms: int
) -> tuple[list[Row], list[int]]:
    """(alert_id and owner_id of those that fired, alerts that were refused). Owners are the caller's to release."""
    ended = _trigger(connection, claims, finalized_at_ms)
    fired = {row["alert_id"] for row in ended}
    return ended, _refuse(connection, [claim for claim in claims if claim.candidate.alert_id not in fired])


def _trigger(connection: Connection[Row], claims: Sequence[Claim], finalized_at_ms: int) -> list[Row]:
    claims = sorted(claims, key=lambda claim: int(claim.candidate.alert_id))  # neighbours in the indexes together
    candidates = [claim.candidate for claim in claims]
    found = QUERIES.trigger_alerts(
        connection,
        finalized_at_ms=finalized_at_ms,
        shard=[claim.shard for claim in claims],
        epoch=[claim.epoch for claim in claims],
        position=[claim.position for claim in claims],
        alert_id=[c.alert_id for c in candidates],
        version=[c.version for c in candidates],
        event_time_ms=[c.event_time_ms for c in candidates],
        sequence=[c.sequence for c in candidates],
        session=[c.session for c in candidates],
        price_scaled=[c.price_scaled for c in candidates],
        fired=[FIRED[c.fired] for c in candidates],
        reference_time_ms=[c.reference_time_ms for c in candidates],
        reference_price_scaled=[c.reference_price_scaled for c in candidates],
        previous_bps=[c.previous_bps for c in candidates],
        current_bps=[c.current_bps for c in candidates],
        previous_price_scaled=[c.previous_price_scaled for c in candidates],
        previous_event_time_ms=[c.previous_event_time_ms for c in candidates],
    )
    return list(found)


def _refuse(connection: Connection[Row], claims: Sequence[Claim]) -> list[int]:
    if not claims:
        return []
    refused = QUERIES.lock_refused(
        connection,
        shard=[claim.shard for claim in claims],
        alert_id=[claim.candidate.alert_id for claim in claims],
        version=[claim.candidate.version for claim in claims],
    )
    symbols = {row["alert_id"]: row["symbol"] for row in refused}
    if not symbols:
        return []
    routes = lock_routes(connection, set(symbols.values()))
    shards = [routes[symbol].shard_of(alert_id) for alert_id, symbol in symbols.items()]
    rows = QUERIES.refuse_claims(connection, shard=shards, alert_id=list(symbols))
    return [row["alert_id"] for row in rows]


def release_places(connection: Connection[Row], ended: Sequence[Row]) -> None:
    """Count down the owners of ended alerts; behind all locks of alerts, see the lock order in finalizer.sql."""
    alerts = Counter(row["owner_id"] for row in ended)
    if alerts:
        QUERIES.release_places(connection, owner_ids=list(alerts), alerts=list(alerts.values()))
