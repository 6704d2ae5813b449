"""Named points between two effects, where a test makes the process die."""

from __future__ import annotations

from typing import Protocol


class Failpoint(Protocol):
    """Called with a point's name; a test's raises there."""

    def __call__(self, point: str) -> None: ...


def survive(point: str) -> None:
    """The failpoint of every real process: nothing happens."""
