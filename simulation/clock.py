"""Time that moves when the scheduler says so."""

from __future__ import annotations

from collections.abc import Callable

START_WALL_MS = 1_790_000_000_000


class SimulatedClock:
    """ports.clock.Clock. `jump` moves the wall clock alone, as an operator or a bad time server does."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.wall_offset_ms = START_WALL_MS
        self.sleep: Callable[[int], None] = self.advance  # the scheduler puts its own here

    def wall_ms(self) -> int:
        return self.wall_offset_ms + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wait(self, seconds: float) -> None:
        self.sleep(round(seconds * 1000))

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def jump(self, ms: int) -> None:
        self.wall_offset_ms += ms
