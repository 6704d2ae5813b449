"""What candidates.v1 says of reshards and rebuilds, inside a batch's transaction (finalizer/shard_ports.py reads)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg import Connection
from psycopg.types.json import Jsonb

from contracts.frames_pb2 import Routing
from finalizer.domain.batch import Activated, BatchPlan, Claim, RoutingMarked
from finalizer.domain.rebuild_report import RebuildReport, summed
from sql.connection import Row
from sql.named import load_queries

QUERIES: Final = load_queries("finalizer")
MAX_NAMED_DIFFERENCES: Final = 100  # of a rebuild, by name; the counts are complete


def write_marks(connection: Connection[Row], plan: BatchPlan) -> None:
    """Routing marks, the newest of each shard, symbol and phase; what matchers report of rebuilds."""
    if plan.routing_marks:
        _write_routing_marks(connection, plan.routing_marks)
    if plan.rebuild_marks:
        _write_rebuild_marks(connection, summed(plan.rebuild_marks))


def _write_routing_marks(connection: Connection[Row], marks: Sequence[RoutingMarked]) -> None:
    newest: dict[tuple[str, str, int], RoutingMarked] = {}
    for marked in marks:
        key = marked.shard, marked.mark.symbol, marked.mark.phase
        known = newest.get(key)
        if known is None or (marked.mark.version, marked.epoch) > (known.mark.version, known.epoch):
            newest[key] = marked
    QUERIES.write_routing_marks(
        connection,
        shard=[shard for shard, _, _ in newest],
        symbol=[symbol for _, symbol, _ in newest],
        phase=[Routing.Phase.Name(marked.mark.phase) for marked in newest.values()],
        version=[marked.mark.version for marked in newest.values()],
        epoch=[marked.epoch for marked in newest.values()],
        position=[marked.position for marked in newest.values()],
    )


def _write_rebuild_marks(connection: Connection[Row], reports: Sequence[RebuildReport]) -> None:
    QUERIES.write_rebuild_marks(
        connection,
        max_differences=MAX_NAMED_DIFFERENCES,
        differences=[Jsonb(report.differences[:MAX_NAMED_DIFFERENCES]) for report in reports],
        **{
            name: [getattr(report, name) for report in reports]
            for name in RebuildReport.__dataclass_fields__
            if name != "differences"
        },
    )


def acknowledge_moves(connection: Connection[Row], activations: Sequence[Activated]) -> None:
    """New shards that hold a moving rule by now."""
    QUERIES.acknowledge_moves(
        connection,
        shard=[a.shard for a in activations],
        alert_id=[a.alert_id for a in activations],
        version=[a.version for a in activations],
        epoch=[a.epoch for a in activations],
        position=[a.position for a in activations],
    )


def lock_moving(connection: Connection[Row], claims: Sequence[Claim]) -> set[int]:
    """Claimed alerts that two shards hold, locked."""
    alert_ids = [claim.candidate.alert_id for claim in claims]
    return {row["alert_id"] for row in QUERIES.lock_moving(connection, alert_ids=alert_ids)}


def park(connection: Connection[Row], claims: Sequence[Claim]) -> None:
    """Keep claims of the shards that alerts move to; others are passed over."""
    if claims:
        QUERIES.park_claims(
            connection,
            shard=[claim.shard for claim in claims],
            alert_id=[claim.candidate.alert_id for claim in claims],
            version=[claim.candidate.version for claim in claims],
            epoch=[claim.epoch for claim in claims],
            position=[claim.position for claim in claims],
            candidate=[claim.candidate.SerializeToString() for claim in claims],
        )
