"""Epochs: a job that starts without state takes a number above any before, see DESIGN §4.

A counter alone would begin again at 1 in a home that was lost and made anew, below what the topics hold: its job's
outputs would be those of an epoch that is over. So an epoch is at least the seconds since 1970.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from stack.files import locked, read_json, write_json

# Gives a job's next epoch, by its full name.
EpochSource = Callable[[str], int]

_LOCK_WAIT_S = 30.0


def counter_file(path: Path, now_s: Callable[[], int] = lambda: int(time.time())) -> EpochSource:
    """Epochs from a counter file. It counts for all jobs together, so an environment made again goes on above.

    now_s: the wall clock. Set back, it takes nothing away: the stored counter goes on.
    """

    def raise_epoch(_job: str) -> int:
        with locked(path.with_suffix(".lock"), busy="another process raises an epoch", wait_s=_LOCK_WAIT_S):
            counters: dict[str, int] = read_json(path, {})
            counters["epoch"] = max(counters.get("epoch", 0) + 1, now_s())
            # on disk before it is used: the same number never means two things
            write_json(path, counters)
            return counters["epoch"]

    return raise_epoch
