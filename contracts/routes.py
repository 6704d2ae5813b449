"""The routing table's row: which shard a rule of a symbol belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from contracts.keys import bucket_of, bucket_shard, hot_shard, shard_of


@dataclass(frozen=True, slots=True)
class SymbolRoute:
    """A symbol has `shards` virtual shards, 1: its bucket's; its feed has `buckets` buckets."""

    symbol: str
    feed: str
    buckets: int
    shards: int

    def shard_of(self, alert_id: int) -> str:
        """Key of the shard that an alert belongs to."""
        return shard_of(self.feed, self.symbol, self.buckets, alert_id, self.shards)

    def all_shards(self) -> list[str]:
        """Keys of every shard of it."""
        if self.shards == 1:
            return [bucket_shard(self.feed, bucket_of(self.symbol, self.buckets))]
        return [hot_shard(self.feed, self.symbol, self.shards, index) for index in range(self.shards)]
