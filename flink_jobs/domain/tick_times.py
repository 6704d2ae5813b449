"""How far a shard's log has come in each symbol's ticks, so that a metrics epoch which feeds them again fires nothing.

A rolling job that starts without state begins a new epoch and writes ticks that the matcher has seen. A rule may have
been installed behind them since; its crossings begin behind its place in the log, so what is fed again is passed over.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from flink_jobs.domain.threshold_keys import Int64s

NEVER: Final = -(1 << 62)


class TickTimes:
    """By symbol number. A symbol's ticks come in rising event time, also when they are fed again."""

    def __init__(self) -> None:
        self.newest_ms: Int64s = np.zeros(64, np.int64)
        self.at_newest: Int64s = np.zeros(64, np.int64)  # ticks of exactly that time
        self.seam_ms: Int64s = np.full(64, NEVER)  # newest_ms when the epoch rose
        self.left_at_seam: Int64s = np.zeros(
            64, np.int64
        )  # ticks of exactly that time that are still to be passed over

    def make_room(self, symbols: int) -> None:
        """For so many symbols at least."""
        while len(self.newest_ms) < symbols:
            nothing = np.zeros_like(self.newest_ms)
            self.newest_ms = np.append(self.newest_ms, nothing)
            self.at_newest = np.append(self.at_newest, nothing)
            self.seam_ms = np.append(self.seam_ms, np.full_like(nothing, NEVER))
            self.left_at_seam = np.append(self.left_at_seam, nothing)

    def begin_epoch(self) -> None:
        """From here on every symbol is fed from some earlier place again."""
        seen = self.at_newest > 0
        self.seam_ms = np.where(seen, self.newest_ms, NEVER)
        self.left_at_seam = self.at_newest.copy()

    def see(self, numbers: Int64s, event_times_ms: Int64s) -> NDArray[np.bool_] | None:
        """Take ticks in, in order; which of them are fed again, None: none."""
        seam_ms = self.seam_ms[numbers]
        fed_again = None
        if (event_times_ms <= seam_ms).any():
            fed_again = event_times_ms < seam_ms
            for row in np.flatnonzero(event_times_ms == seam_ms).tolist():
                number = int(numbers[row])
                if self.left_at_seam[number] > 0:
                    self.left_at_seam[number] -= 1
                    fed_again[row] = True
            numbers, event_times_ms = numbers[~fed_again], event_times_ms[~fed_again]
        before_ms = self.newest_ms[numbers]
        np.maximum.at(self.newest_ms, numbers, event_times_ms)
        after_ms = self.newest_ms[numbers]
        self.at_newest[numbers[after_ms > before_ms]] = 0
        np.add.at(self.at_newest, numbers[event_times_ms == after_ms], 1)
        return fed_again

    def advance(self, number: int, time_ms: int) -> None:
        """Ticks up to this time went elsewhere; none of exactly that time has been fed here, if it is newer."""
        if time_ms > self.newest_ms[number]:
            self.newest_ms[number], self.at_newest[number] = time_ms, 0

    def columns(self, numbers: Int64s) -> Int64s:
        """What `restore` takes, shape (4, n): numbers, newest_ms, at_newest, left_at_seam."""
        return np.array([numbers, self.newest_ms[numbers], self.at_newest[numbers], self.left_at_seam[numbers]])

    def restore(self, columns: Int64s) -> None:
        """Of one epoch: seams are those of its beginning."""
        numbers = columns[0]
        self.newest_ms[numbers], self.at_newest[numbers], self.left_at_seam[numbers] = columns[1:]
