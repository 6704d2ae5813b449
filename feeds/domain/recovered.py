"""What prices.v1 holds of a feed: enough to go on without losing or doubling an entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RecoveredFeed:
    """positions: bucket -> source partition -> next position; before it, every entry of that bucket is in."""

    positions: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    frontier_ms: int = 0

    def copy_positions(self, buckets: int) -> list[dict[str, int]]:
        """One dict a bucket; empty where nothing is known."""
        return [dict(self.positions.get(bucket, {})) for bucket in range(buckets)]

    def start_positions(self, buckets: int) -> dict[str, int]:
        """Least position per source partition over all buckets: where the source must begin again."""
        known = self.copy_positions(buckets)
        partitions = {partition for positions in known for partition in positions}
        return {partition: min(positions.get(partition, 0) for positions in known) for partition in partitions}
