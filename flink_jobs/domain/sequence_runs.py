"""A set of sequence numbers kept as runs, since missing and void numbers come in stretches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

MAX_RUNS: Final = 16_384  # per symbol and session; beyond it the lowest run is forgotten


class SequenceRuns:
    """Disjoint closed runs [first, last] in rising order. Adding and removing cost O(runs)."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in runs:
            self.add(first, last)

    def __contains__(self, value: int) -> bool:
        at = bisect_right(self._firsts, value) - 1
        return at >= 0 and value <= self._lasts[at]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def runs(self) -> list[tuple[int, int]]:
        """The runs, rising."""
        return list(zip(self._firsts, self._lasts, strict=True))

    def end_of_run(self, value: int) -> int:
        """Last member of the run that holds `value`, or value - 1 when none does."""
        at = bisect_right(self._firsts, value) - 1
        return self._lasts[at] if at >= 0 and value <= self._lasts[at] else value - 1

    def add(self, first: int, last: int) -> None:
        """Add every number from first to last; runs that touch become one."""
        if first > last:
            return
        low = bisect_right(self._firsts, first) - 1
        if low < 0 or self._lasts[low] < first - 1:
            low += 1
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._firsts[low:high], self._lasts[low:high] = [first], [last]
        if len(self._firsts) > MAX_RUNS:
            del self._firsts[0], self._lasts[0]

    def remove(self, first: int, last: int) -> None:
        """Take every number from first to last out."""
        if first > last:
            return
        low = bisect_right(self._firsts, first) - 1
        if low < 0 or self._lasts[low] < first:
            low += 1
        high = bisect_right(self._firsts, last)
        if low >= high:
            return
        firsts, lasts = [], []
        if self._firsts[low] < first:
            firsts.append(self._firsts[low])
            lasts.append(first - 1)
        if self._lasts[high - 1] > last:
            firsts.append(last + 1)
            lasts.append(self._lasts[high - 1])
        self._firsts[low:high], self._lasts[low:high] = firsts, lasts
