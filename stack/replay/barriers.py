"""Waiting on positions: never for a guessed time, never without an end, and the end says what is stuck."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import psycopg
from psycopg_pool import PoolTimeout

from contracts.keys import bucket_shard
from sql.connection import Pool, transaction
from sql.progress_store import ProgressStore, ShardPosition
from stack.errors import StackError

POLL_S: Final = 0.01
HEAL_INTERVAL_S: Final = 5.0
MAX_NAMED_SHARDS: Final = 3
# The database may be killed and restarted while somebody waits.
_AWAY: Final = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)
T = TypeVar("T")


class Barriers:
    """Positions of one environment, read until they are where they must be."""

    def __init__(
        self, pool: Pool, describe_unwell: Callable[[], str], heal: Callable[[], None], deadline_s: float = 180.0
    ) -> None:
        """`describe_unwell` says in words which processes or jobs are not well, "" when all are.

        `heal` is called now and then while something is missing: it puts back what nobody else would.
        """
        self._pool = pool
        self._describe_unwell = describe_unwell
        self._heal = heal
        self._deadline_s = deadline_s

    def await_marker(self, feed: str, buckets: int, marker_id: int) -> None:
        """Everything before this marker of the feed is finalized, and what it expired has been swept."""
        shards = feed_shards(feed, buckets)

        def missing() -> str:
            found = self.read(lambda store: store.shards(shards))
            late = [
                _describe(shard, found.get(shard)) for shard in shards if not _has_passed(found.get(shard), marker_id)
            ]
            return "; ".join(late[:MAX_NAMED_SHARDS]) + (f"; {len(late) - MAX_NAMED_SHARDS} more" * (len(late) > 3))

        self.wait(f"marker {marker_id} of feed {feed} is not finalized", missing)

    def await_controls(self, feed: str) -> None:
        """Every committed control of the feed is in its price log."""

        def missing() -> str:
            left = self.read(lambda store: store.unpublished_controls(feed))
            return f"{left} are not published by the gateway" if left else ""

        self.wait(f"controls of feed {feed} are not published", missing)

    def wait(self, problem: str, missing: Callable[[], str]) -> None:
        """Until `missing` says nothing. Raises StackError with its last word when the deadline has passed."""
        deadline = time.monotonic() + self._deadline_s
        look_again = time.monotonic() + HEAL_INTERVAL_S
        while left := missing():
            if time.monotonic() > look_again:
                self._heal()
                look_again = time.monotonic() + HEAL_INTERVAL_S
            if time.monotonic() > deadline:
                unwell = self._describe_unwell()
                raise StackError(
                    f"{problem} after {self._deadline_s:.0f} s: {left}",
                    where=f"not well: {unwell}" if unwell else "every process says that it is well",
                    remedy="look into the log of the part it is stuck in (`./alerts status` names them)",
                )
            time.sleep(POLL_S)

    def read(self, ask: Callable[[ProgressStore], T]) -> T:
        """A question to the database, asked again while it is away."""
        deadline = time.monotonic() + self._deadline_s
        while True:
            try:
                with transaction(self._pool) as connection:
                    return ask(ProgressStore(connection))
            except _AWAY as error:
                if time.monotonic() > deadline:
                    raise StackError(f"Postgres is away for {self._deadline_s:.0f} s", remedy=str(error)) from None
                time.sleep(POLL_S)

    def positions(self, feed: str, buckets: int) -> list[ShardPosition]:
        """Of the feed's bucket shards; their counts are the feed's."""
        shards = feed_shards(feed, buckets)
        return list(self.read(lambda store: store.shards(shards)).values())


def feed_shards(feed: str, buckets: int) -> Sequence[str]:
    """The bucket shards of a feed whose symbols have no virtual shards."""
    return [bucket_shard(feed, bucket) for bucket in range(buckets)]


def _has_passed(position: ShardPosition | None, marker_id: int) -> bool:
    return position is not None and position.marker_id >= marker_id and position.swept_ms >= position.frontier_ms


def _describe(shard: str, position: ShardPosition | None) -> str:
    if position is None:
        return f"shard {shard} has finalized nothing"
    if position.gap:
        return f"shard {shard} has a gap: {position.gap}"
    swept = "" if position.swept_ms >= position.frontier_ms else f", swept to {position.swept_ms}"
    return f"shard {shard} is at marker {position.marker_id}, frontier {position.frontier_ms}{swept}"
