"""The market clock: what time it is for a feed's alerts."""

from __future__ import annotations

from collections.abc import Iterable

from api.ports import FeedFrontier

LIVE_MODE = "live"


def market_now_ms(clock_mode: str, frontier_ms: int | None, wall_ms: int, bound_ms: int) -> int | None:
    """Now, in epoch milliseconds; None for a replay whose feed has no frontier yet.

    A replay's clock is its frontier. A live feed's is the wall clock, kept within [frontier, frontier + bound]: a
    host whose clock is wrong must not make alerts that begin in the future or have ended already.
    """
    if clock_mode != LIVE_MODE:
        return frontier_ms
    if frontier_ms is None:
        return wall_ms
    return min(max(wall_ms, frontier_ms), frontier_ms + bound_ms)


def feed_clocks_ms(frontiers: Iterable[FeedFrontier], wall_ms: int, bound_ms: int) -> dict[str, int]:
    """The clock of each feed that has one."""
    clocks = ((f.feed, market_now_ms(f.clock_mode, f.frontier_ms, wall_ms, bound_ms)) for f in frontiers)
    return {feed: now_ms for feed, now_ms in clocks if now_ms is not None}
