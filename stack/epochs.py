"""Epochs: a job that starts without state takes a number above any before, see DESIGN §4."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stack.files import locked, read_json, write_json

# Gives a job's next epoch, by its full name.
EpochSource = Callable[[str], int]

_LOCK_WAIT_S = 30.0


def counter_file(path: Path) -> EpochSource:
    """Epochs from a counter file. It counts for all jobs together, so an environment made again goes on above."""

    def raise_epoch(_job: str) -> int:
        with locked(path.with_suffix(".lock"), busy="another process raises an epoch", wait_s=_LOCK_WAIT_S):
            counters: dict[str, int] = read_json(path, {})
            counters["epoch"] = counters.get("epoch", 0) + 1
            # on disk before it is used: the same number never means two things
            write_json(path, counters)
            return counters["epoch"]

    return raise_epoch
