"""Mutants of the rolling core: prices, order, windows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from flink_jobs.domain import rolling_changes
from flink_jobs.domain.feed_order import FeedOrder
from flink_jobs.domain.history import History
from flink_jobs.domain.rolling import RollingCore
from flink_jobs.domain.rolling_changes import BPS, UNDEFINED, RollingChanges
from simulation.mutants.mutant import Mutant, changed, skipped


def _rounded(right: Any) -> Any:
    """A change is rounded to whole basis points."""

    def floors(self: Any, *columns: Any) -> Any:
        floor, negated = right(self, *columns)
        price, reference_price = columns[2], columns[4]
        defined = floor != UNDEFINED
        base = np.where(defined, reference_price, 1)
        nearest = (2 * (price[:, None] - base) * BPS + base) // (2 * base)
        return np.where(defined, nearest, floor), np.where(defined, -nearest, negated)

    return floors


def _in_floats(right: Any) -> Any:
    """A change is computed in floats, so that it may miss a threshold that it just reaches."""

    def floors(self: Any, *columns: Any) -> Any:
        floor, negated = right(self, *columns)
        price, reference_price = columns[2].astype(np.float32), columns[4].astype(np.float32)
        change = (price[:, None] / np.maximum(reference_price, 1) - np.float32(1)) * np.float32(BPS)
        up, down = np.floor(change).astype(np.int64), np.floor(-change).astype(np.int64)
        near = (floor != UNDEFINED) & (abs(up - floor) <= 1)  # farther away lies a split
        return np.where(near, up, floor), np.where(near, down, negated)

    return floors


def _strict_edge(right: Any) -> Any:
    return lambda self, slot, time_ms, *rest: right(self, slot, time_ms - 1, *rest)


def _any_age(right: Any) -> Any:
    def floors(self: Any, *columns: Any) -> Any:
        ages = self.reference_age_ms
        self.reference_age_ms = np.full_like(ages, 1 << 61)
        try:
            return right(self, *columns)
        finally:
            self.reference_age_ms = ages

    return floors


def _undefined_is_zero(right: Any) -> Any:
    """A window without a reference counts as unchanged, so that the first change crosses."""

    def floors(self: Any, *columns: Any) -> Any:
        floor, negated = right(self, *columns)
        return np.where(floor == UNDEFINED, 0, floor), np.where(negated == UNDEFINED, 0, negated)

    return floors


def _newest_reference(right: Any) -> Any:
    """The reference is the last price before the window's end, not its beginning: windows are a second short."""

    def references(self: Any, slot: Any, time_ms: Any, *rest: Any) -> Any:
        return right(self, slot, time_ms + 1_000, *rest)

    return references


def _no_wait(right: Any) -> Any:
    """Ticks are emitted as they arrive: nobody waits for a missing sequence."""

    def release(self: Any, row: int, slot: int, *, everything: bool = False) -> None:
        right(self, row, slot, everything=True)

    return release


def _never_suppressed(right: Any) -> Any:
    def split(self: Any, slot: int, *rest: Any) -> bool:
        known = bool(right(self, slot, *rest))
        self.suppressed[slot] = 0
        return known

    return split


def _no_fresh_baseline(right: Any) -> Any:
    """After a suppression evaluation goes on from the metrics before it."""

    def resume(self: Any, slot: int) -> bool:
        was, self.suppressed[slot] = bool(self.suppressed[slot]), 0
        return was

    return resume


def _late_is_emitted(right: Any) -> Any:
    """A tick behind the frontier is evaluated as if it were in time."""

    def valid(self: Any, row: int, slot: int, tick: Any) -> None:
        frontier, self.frontier_ms = self.frontier_ms, 0
        try:
            right(self, row, slot, tick)
        finally:
            self.frontier_ms = frontier

    return valid


def _frontier_by_ticks(right: Any) -> Any:
    """The newest tick moves the frontier, where only a heartbeat may."""

    def ticks(self: Any, frame: Any, begin: int, end: int) -> Any:
        found = right(self, frame, begin, end)
        if len(found):
            self.frontier_ms = max(self.frontier_ms, int(found.time_ms.max()))
        return found

    return ticks


def _session_forgets(right: Any) -> Any:
    """A new session drops what the old one still held."""

    def valid(self: Any, row: int, slot: int, tick: Any) -> None:
        if tick.session > int(self.session[slot]):
            self.waiting[slot].held.clear()
        right(self, row, slot, tick)

    return valid


COMPUTING: Final = (
    Mutant("rounded-bps", "changes are rounded to whole basis points", changed(RollingChanges, "_floors", _rounded)),
    Mutant("float-compare", "changes are computed in floats", changed(RollingChanges, "_floors", _in_floats)),
    Mutant(
        "strict-window-edge",
        "a price exactly one window old is no reference",
        changed(History, "references", _strict_edge),
    ),
    Mutant("short-window", "windows end a second early", changed(History, "references", _newest_reference)),
    Mutant(
        "reference-of-any-age", "a reference may be as old as it likes", changed(RollingChanges, "_floors", _any_age)
    ),
    Mutant(
        "undefined-is-zero",
        "a window without a reference counts as unchanged",
        changed(RollingChanges, "_floors", _undefined_is_zero),
    ),
    Mutant("no-reorder", "nobody waits for a missing sequence", changed(FeedOrder, "_release", _no_wait)),
    Mutant(
        "sequence-waits-for-rubbish", "a refused tick does not consume its sequence", skipped(FeedOrder, "_consume")
    ),
    Mutant("duplicates-unknown", "a sequence that was there is not known again", skipped(FeedOrder, "_known", False)),
    Mutant(
        "late-is-emitted", "a tick behind the frontier is evaluated", changed(FeedOrder, "_valid", _late_is_emitted)
    ),
    Mutant("frontier-by-ticks", "ticks move the frontier", changed(FeedOrder, "ticks", _frontier_by_ticks)),
    Mutant(
        "session-forgets-held",
        "a new session drops what the old one held",
        changed(FeedOrder, "_valid", _session_forgets),
    ),
    Mutant(
        "split-not-adjusted",
        "reference prices are not brought to the new share basis",
        changed(rolling_changes, "_exact_floors", lambda right: lambda *given: right(*given[:4], {})),
    ),
    Mutant(
        "late-split-not-suppressed",
        "a late split leaves its symbol firing",
        changed(RollingChanges, "split", _never_suppressed),
    ),
    Mutant(
        "resume-without-baseline",
        "a resumed symbol goes on from its old metrics",
        changed(RollingChanges, "resume", _no_fresh_baseline),
    ),
    Mutant("settings-ignored", "settings of the feed change nothing", skipped(RollingCore, "_settings")),
)
