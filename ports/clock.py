"""Time as services see it."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for stamps, monotonic time for durations; both in milliseconds."""

    def wall_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...

    def wait(self, seconds: float) -> None:
        """Let time pass, at most so long."""
        ...


class SystemClock:
    """The machine's clocks. `stop()` ends every present and later wait at once."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wait(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    def stop(self) -> None:
        self._stopped.set()
