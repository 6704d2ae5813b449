"""Price targets over splits: which list a target is in, and which integers in it a price move crosses.

A basis is the number of the symbol's splits at or before a rule's creation; every basis has a pair of lists
(ABOVE, BELOW), named by a pair number that never changes. A split that becomes known later divides a basis: the
rules created at or after it move to a fresh pair.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from flink_jobs.domain.threshold_keys import MAX_THRESHOLD


@dataclass(frozen=True, slots=True)
class Split:
    """`new_shares` for `old_shares` from `effective_from_ms` on."""

    effective_from_ms: int
    new_shares: int
    old_shares: int


class Division(NamedTuple):
    """Rules of `old_pair` created at or after `created_from_ms` belong to `new_pair`."""

    old_pair: int
    new_pair: int
    created_from_ms: int


class Crossing(NamedTuple):
    """Targets of one basis that a move crosses: lowest <= target <= highest."""

    pair: int
    above: bool
    lowest: int
    highest: int


@dataclass(slots=True)
class SplitHistory:
    """One symbol's splits, ascending, and the pair of every basis (one more than splits)."""

    splits: list[Split] = field(default_factory=list)
    pairs: list[int] = field(default_factory=lambda: [0])

    def pair_at(self, created_at_ms: int) -> int:
        """Pair that a rule created then belongs to."""
        return self.pairs[bisect_right(self.splits, created_at_ms, key=lambda split: split.effective_from_ms)]

    def add(self, split: Split) -> Division | None:
        """Learn a split; None when one of that time is known."""
        at = bisect_left(self.splits, split.effective_from_ms, key=lambda known: known.effective_from_ms)
        if at < len(self.splits) and self.splits[at].effective_from_ms == split.effective_from_ms:
            return None
        fresh = len(self.pairs)
        self.splits.insert(at, split)
        self.pairs.insert(at + 1, fresh)
        return Division(self.pairs[at], fresh, split.effective_from_ms)

    def crossings(self, previous: int, previous_time_ms: int, price: int, time_ms: int) -> list[Crossing]:
        """What a move from a previous price, as printed then, to a price at `time_ms` crosses, a basis each.

        `last` is the previous price on the basis at `time_ms`; R brings prices of that basis to the rule's.
        ABOVE: last*R < target <= price*R. BELOW: price*R <= target < last*R. All in integers.
        """
        effective = bisect_right(self.splits, time_ms, key=lambda split: split.effective_from_ms)
        last, last_divisor = previous, 1
        for split in self.splits[:effective]:
            if split.effective_from_ms > previous_time_ms:
                last, last_divisor = last * split.old_shares, last_divisor * split.new_shares
        rising = last < price * last_divisor
        if last == price * last_divisor:
            return []
        crossings = []
        numerator, divisor = 1, 1
        for basis in range(len(self.pairs) - 1, -1, -1):
            if basis < effective:
                split = self.splits[basis]
                numerator, divisor = numerator * split.new_shares, divisor * split.old_shares
            if rising:
                lowest = last * numerator // (last_divisor * divisor) + 1
                highest = price * numerator // divisor
            else:
                lowest = -(-price * numerator // divisor)
                highest = -(-last * numerator // (last_divisor * divisor)) - 1
            if lowest <= highest and lowest <= MAX_THRESHOLD:
                crossings.append(Crossing(self.pairs[basis], rising, lowest, min(highest, MAX_THRESHOLD)))
        return crossings
