"""A clock that stands still until a test moves it."""

from __future__ import annotations


class SettableClock:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class DiedError(RuntimeError):
    """The process was killed at a failpoint."""


class DieAt:
    """Kills at the first passage of a point, once."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.died = False

    def __call__(self, point: str) -> None:
        if point == self.point and not self.died:
            self.died = True
            raise DiedError(point)
