"""A clock that stands where a test puts it."""

from __future__ import annotations


class SettableClock:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1_000)
