"""Where a simulated part may be interrupted: every call over the network is a turn of the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Turns(Protocol):
    """Handed to every simulated log, database and channel. In a simulation, other parts run during both calls."""

    def pause(self, point: str) -> None:
        """Before and after each effect. May raise: the part is killed (a BaseException), its connection breaks, the
        effect is refused. `point` names the place, for the history and the counters: `db.commit`, `log.flush`."""
        ...

    def wait(self, point: str, ready: Callable[[], bool]) -> None:
        """Until `ready()`; may raise as `pause` does."""
        ...


class DeadlockedError(RuntimeError):
    """Outside a simulation nobody else runs, so what is waited for never comes."""


class NoTurns:
    """For tests of one part alone: nothing interrupts, and a wait must be over already."""

    def pause(self, point: str) -> None: ...

    def wait(self, point: str, ready: Callable[[], bool]) -> None:
        """Raises DeadlockedError."""
        if not ready():
            raise DeadlockedError(f"{point}: waits for ever")
