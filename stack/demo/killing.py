"""kill -9 of each process in turn while the demo plays: no result may change."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

from stack.embedded import EmbeddedStack
from stack.progress import say


class KillEach:
    """Kills one program at each of the evenly spaced steps, once everything before it is finalized."""

    def __init__(self, stack: EmbeddedStack, steps: int, barrier: Callable[[], None]) -> None:
        self._stack = stack
        self._barrier = barrier
        self.victims = sorted(state.name for state in stack.supervisor.states().values() if state.is_running)
        self.killed: list[str] = []
        self._due = self._schedule(steps)
        self._next = next(self._due, None)

    def _schedule(self, steps: int) -> Iterator[tuple[int, str]]:
        for number, victim in enumerate(self.victims, 1):
            yield number * steps // (len(self.victims) + 1), victim

    def at(self, step: int) -> None:
        """Call at every step, from 0."""
        if self._next is None or step < self._next[0]:
            return
        self._barrier()
        name = self._next[1]
        self._next = next(self._due, None)
        state = self._stack.supervisor.states().get(name)
        if state is None or not state.pid:
            say(f"kill -9 {name}: it is not up")
            return
        with suppress(ProcessLookupError):
            os.kill(state.pid, signal.SIGKILL)
            self.killed.append(name)
        say(f"kill -9 {name} (pid {state.pid})")
