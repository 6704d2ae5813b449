"""Reshards and rebuilds at rest: everybody is where the routing says, and reading the table out found no difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from contracts.keys import shard_of
from simulation.audit.finding import Finding

if TYPE_CHECKING:
    from simulation.world import World


def audit_moves(world: World) -> Iterator[Finding]:
    """Live alerts are in the shard of their symbol's routing and nowhere on the way; no parked claim waits."""
    feeds = {feed.name: feed for feed in world.plan.feeds}
    instruments = {row["symbol"]: row for row in world.database.rows("instruments")}
    alerts = {row["alert_id"]: row for row in world.database.rows("alerts")}
    for row in alerts.values():
        if row["status"] not in ("PENDING", "ACTIVE", "PAUSED"):
            continue
        instrument = instruments[row["symbol"]]
        buckets = feeds[instrument["feed"]].buckets
        wanted = shard_of(instrument["feed"], row["symbol"], buckets, row["alert_id"], instrument["shards"])
        if (row["shard"], row["moving_to"]) != (wanted, None):
            yield Finding("moves", f"alert {row['alert_id']} is in {row['shard']}, on the way to {row['moving_to']}")
    for row in world.database.rows("parked_claims"):
        alert = alerts[row["alert_id"]]
        if not row["taken"] and (alert["status"], alert["version"]) == ("ACTIVE", row["version"]):
            yield Finding("moves", f"alert {row['alert_id']}: a claim of {row['shard']} waits for nobody")
    for row in world.database.rows("rebuilds"):
        if row["missing"] or row["surplus"] or row["other_version"]:
            yield Finding("rebuild", f"{row['shard']}: {row['differences'][:3]} in an index that nobody harmed")
