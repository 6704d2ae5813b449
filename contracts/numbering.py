"""The reader's rule for numbered entries: what of an arriving frame is new, known, over or ahead of a gap.

Every writer gives its entries an (epoch, number), dense per key. A reader keeps the last pair it applied, in the
same transaction or state as the work itself. A replayed writer may cut frames elsewhere: the rule counts entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reading(StrEnum):
    """What a frame is to its reader."""

    APPLY = "apply"  # entries from `skip` on continue this epoch
    NEW_EPOCH = "new_epoch"  # a higher epoch begins, with its entry 1
    KNOWN = "known"  # every entry was applied before (or the frame has none)
    OLD_EPOCH = "old_epoch"  # a writer that is over
    GAP = "gap"  # it begins beyond the next number: ignore it, its writer will write again


@dataclass(frozen=True, slots=True)
class Judgement:
    """`skip`: how many leading entries were applied before (0 unless APPLY). `last`: the pair after the frame."""

    reading: Reading
    skip: int
    last: LastNumber

    @property
    def applies(self) -> bool:
        """Whether the frame holds an entry to apply."""
        return self.reading in (Reading.APPLY, Reading.NEW_EPOCH)


@dataclass(frozen=True, slots=True)
class LastNumber:
    """The last (epoch, number) that a reader applied of one writer and key; (0, 0) before the first."""

    epoch: int = 0
    number: int = 0

    def judge(self, epoch: int, first_number: int, count: int) -> Judgement:
        """Judge a frame whose entries are (epoch, first_number) … (epoch, first_number + count - 1)."""
        if epoch < self.epoch:
            return Judgement(Reading.OLD_EPOCH, 0, self)
        applied = self.number if epoch == self.epoch else 0
        if first_number > applied + 1:
            return Judgement(Reading.GAP, 0, self)
        last_number = first_number + count - 1
        if last_number <= applied:
            return Judgement(Reading.KNOWN, 0, self)
        if epoch > self.epoch:
            return Judgement(Reading.NEW_EPOCH, 0, LastNumber(epoch, last_number))
        return Judgement(Reading.APPLY, applied + 1 - first_number, LastNumber(epoch, last_number))
