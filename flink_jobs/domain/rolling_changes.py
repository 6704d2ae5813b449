"""Six rolling changes of every emitted tick, exact: floors of the change and of its negative, in basis points.

A threshold b is an integer, so previous < b <= current holds exactly when floor(previous) < b <= floor(current):
the two floors are all that the state keeps of a symbol's last metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contracts.vocabulary import DEFAULT_REFERENCE_AGE_MS, WINDOWS
from flink_jobs.domain.feed_order import NO_TIME, Ticks, grown
from flink_jobs.domain.history import NEVER, SPANS, History
from flink_jobs.domain.rolling_frames import Int64s

UNDEFINED: Final = -(1 << 63)  # a floor of a metric that is not defined
BPS: Final = 10_000
_FLOOR_LIMIT: Final = 1 << 62  # beyond any threshold; reached only by absurd splits
_W: Final = len(WINDOWS)


@dataclass(frozen=True, slots=True)
class Changes:
    """Previous prices of emitted ticks (one a tick), and the (tick, window) pairs that may cross a threshold."""

    previous_price: Int64s  # 0: none
    previous_ms: Int64s
    row: Int64s  # from here one a pair, sorted by (row, window)
    window: Int64s
    previous_floor: Int64s
    previous_negated_floor: Int64s
    current_floor: Int64s
    current_negated_floor: Int64s
    reference_ms: Int64s
    reference_price: Int64s

    @staticmethod
    def joined(parts: Sequence[Changes]) -> Changes:
        """All parts, one after the other; rows go on counting."""
        if len(parts) == 1:
            return parts[0]
        firsts = np.cumsum([0, *(len(part.previous_price) for part in parts)])
        rows = [part.row + first for part, first in zip(parts, firsts, strict=False)]
        nothing = np.zeros(0, np.int64)
        columns = {
            f.name: np.concatenate([nothing, *(getattr(part, f.name) for part in parts)]) for f in fields(Changes)
        }
        columns["row"] = np.concatenate([nothing, *rows])
        return Changes(**columns)


Splits: TypeAlias = dict[int, tuple[int, int]]  # effective_from -> (new, old) shares


def _exact_floors(price: int, time: int, ref_price: int, ref_ms: int, splits: Splits) -> tuple[int, int]:
    """Floors of the change and its negative when splits lie between the reference and the tick."""
    new_shares = old_shares = 1
    for effective_from, (new, old) in splits.items():
        if ref_ms < effective_from <= time:
            new_shares, old_shares = new_shares * new, old_shares * old
    base, now = ref_price * old_shares, price * new_shares
    difference = (now - base) * BPS
    up, down = difference // base, -difference // base
    return max(-_FLOOR_LIMIT, min(_FLOOR_LIMIT, up)), max(-_FLOOR_LIMIT, min(_FLOOR_LIMIT, down))


class RollingChanges:
    """Per symbol slot: last metrics, last price, splits, suppression; over one History."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.reference_age_ms: Int64s = np.array([DEFAULT_REFERENCE_AGE_MS[window] for window in WINDOWS], np.int64)
        nothing, metrics = np.zeros(0, np.int64), np.zeros((0, _W), np.int64)
        self.previous_floor, self.previous_negated_floor = metrics, metrics
        self.last_ms, self.last_price = nothing, nothing
        self.suppressed, self.baseline = nothing, nothing  # 1: yes
        self.newest_split_ms = nothing  # NO_TIME: no split
        self.splits: dict[int, Splits] = {}  # by slot

    def add_slot(self, slot: int) -> None:
        """Room for one more symbol."""
        self.history.add_slot(slot)
        self.previous_floor = grown(self.previous_floor, slot + 1, UNDEFINED)
        self.previous_negated_floor = grown(self.previous_negated_floor, slot + 1, UNDEFINED)
        self.last_ms, self.last_price = grown(self.last_ms, slot + 1, NO_TIME), grown(self.last_price, slot + 1, 0)
        self.suppressed, self.baseline = grown(self.suppressed, slot + 1, 0), grown(self.baseline, slot + 1, 0)
        self.newest_split_ms = grown(self.newest_split_ms, slot + 1, NO_TIME)

    def split(self, slot: int, effective_from_ms: int, new_shares: int, old_shares: int) -> bool:
        """Take a split in; one that comes after prices on its basis suppresses the symbol. False: known already."""
        known = self.splits.setdefault(slot, {})
        if effective_from_ms in known:
            return False
        known[effective_from_ms] = (new_shares, old_shares)
        self.newest_split_ms[slot] = max(int(self.newest_split_ms[slot]), effective_from_ms)
        if self.last_ms[slot] != NO_TIME and self.last_ms[slot] >= effective_from_ms:
            self.suppressed[slot] = 1
        return True

    def resume(self, slot: int) -> bool:
        """End a suppression: evaluation starts from a fresh baseline. False: the symbol was not suppressed."""
        if not self.suppressed[slot]:
            return False
        self.suppressed[slot], self.baseline[slot] = 0, 1
        self.previous_floor[slot] = self.previous_negated_floor[slot] = UNDEFINED
        return True

    def evaluate(self, ticks: Ticks) -> Changes:
        """Evaluate emitted ticks, in emitted order (per symbol of rising time), and keep them as history."""
        order = np.argsort(ticks.slot, kind="stable")
        slot, time, price = ticks.slot[order], ticks.time_ms[order], ticks.price_scaled[order]
        n = len(slot)
        last = np.empty(n, np.bool_)  # of its slot
        last[-1] = True
        np.not_equal(slot[1:], slot[:-1], out=last[:-1])
        ends = last.nonzero()[0]
        starts = np.empty_like(ends)
        starts[0], starts[1:] = 0, ends[:-1] + 1
        heads, tails = slot[starts], slot[ends]
        self.history.append(slot, time, price, starts)

        before_price, before_ms = np.empty(n, np.int64), np.empty(n, np.int64)
        before_price[1:], before_ms[1:] = price[:-1], time[:-1]
        before_price[starts], before_ms[starts] = self.last_price[heads], self.last_ms[heads]
        self.last_price[tails], self.last_ms[tails] = price[ends], time[ends]
        reference_ms, reference_price = self.history.references(slot, time, before_ms, before_price, ends)

        floor, negated = self._floors(slot, time, price, reference_ms, reference_price)
        last_floor, last_negated = np.empty_like(floor), np.empty_like(negated)
        last_floor[1:], last_negated[1:] = floor[:-1], negated[:-1]
        last_floor[starts], last_negated[starts] = self.previous_floor[heads], self.previous_negated_floor[heads]
        crossing = ((last_floor < floor) | (last_negated < negated)) & (last_floor != UNDEFINED) & (floor != UNDEFINED)

        quiet = self.suppressed[slot] != 0
        if quiet.any():
            crossing[quiet] = False
            before_price[quiet] = 0
            ends = ends[~quiet[ends]]
            tails = slot[ends]
        self.previous_floor[tails], self.previous_negated_floor[tails] = floor[ends], negated[ends]
        fresh = starts[(self.baseline[heads] != 0) & ~quiet[starts]]
        if len(fresh):
            before_price[fresh] = 0
            self.baseline[slot[fresh]] = 0
        before_ms[before_price == 0] = 0

        place = np.empty(n, np.intp)  # emitted order -> place in slot order
        place[order] = np.arange(n)
        row, window = crossing[place].nonzero()
        pair = place[row] * _W + window
        columns = (last_floor, last_negated, floor, negated, reference_ms, reference_price)
        return Changes(before_price[place], before_ms[place], row, window, *(c.ravel()[pair] for c in columns))

    def _floors(
        self, slot: Int64s, time: Int64s, price: Int64s, reference_ms: Int64s, reference_price: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Floors of each (tick, window)'s change and of its negative, UNDEFINED where there is no reference.

        Prices are below 2^48, so (price - reference) * 10 000 stays within 62 bits.
        """
        defined = (reference_price > 0) & (time[:, None] - SPANS - reference_ms <= self.reference_age_ms)
        base = np.where(defined, reference_price, 1)
        difference = (price[:, None] - base) * BPS
        floor = difference // base
        negated = -floor - (floor * base != difference)
        floor[~defined] = negated[~defined] = UNDEFINED
        split_between = defined & (reference_ms < self.newest_split_ms[slot][:, None])
        if split_between.any():
            for row, window in zip(*(axis.tolist() for axis in split_between.nonzero()), strict=True):
                floor[row, window], negated[row, window] = _exact_floors(
                    int(price[row]), int(time[row]), int(reference_price[row, window]), int(reference_ms[row, window]),
                    self.splits[int(slot[row])],
                )  # fmt: skip
        return floor, negated

    def reach_ms(self, live: NDArray[np.bool_], frontier_ms: int) -> Int64s:
        """By slot: no later tick can have a reference older than this. NEVER for slots that are over."""
        newest = np.maximum(self.last_ms[: len(live)], frontier_ms)
        reach = newest - int(SPANS[-1]) - int(self.reference_age_ms[-1])
        return np.where(live, reach, NEVER)
