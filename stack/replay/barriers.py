"""Waiting on positions: never for a guessed time, never without an end, and the end says what is stuck."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import psycopg
from psycopg_pool import PoolTimeout

from contracts.keys import bucket_shard
from finalizer.shard_ports import Phase, Reshard
from sql.connection import Pool, transaction
from sql.progress_store import ProgressStore, ShardPosition
from stack.errors import StackError

POLL_S: Final = 0.01
HEAL_INTERVAL_S: Final = 5.0
MAX_NAMED_SHARDS: Final = 3
UNDECIDED: Final = frozenset({Phase.ENDING, Phase.SWITCHING})
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
        """Everything before this marker of the feed is finalized, and what it expired has been swept.

        Also in the shards of hot symbols. A reshard whose old shards have come to their end is waited for: until it is
        done, claims of its new shards are not decided.
        """

        def missing() -> str:
            moving = self.read(lambda store: store.reshards(feed))
            ending = [move for move in moving if move.phase in UNDECIDED]
            if ending:
                return f"{ending[0].new.symbol} is moving to {ending[0].new.shards} shards ({ending[0].phase.lower()})"
            shards = self._fed_shards(feed, buckets, moving)
            found = self.read(lambda store: store.shards(shards))
            late = [
                _describe(shard, found.get(shard)) for shard in shards if not _has_passed(found.get(shard), marker_id)
            ]
            return "; ".join(late[:MAX_NAMED_SHARDS]) + (f"; {len(late) - MAX_NAMED_SHARDS} more" * (len(late) > 3))

        self.wait(f"marker {marker_id} of feed {feed} is not finalized", missing)

    def _fed_shards(self, feed: str, buckets: int, moving: Sequence[Reshard]) -> list[str]:
        """All that get the feed's metrics."""
        routes = self.read(lambda store: store.hot_routes(feed))
        fed = [*feed_shards(feed, buckets), *(shard for route in routes for shard in route.all_shards())]
        for move in moving:
            opened = [] if move.phase is Phase.OPENING else move.new.all_shards()
            fed += [*move.old.all_shards(), *opened]
        return list(dict.fromkeys(fed))

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
    """The bucket shards of a feed."""
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
