"""kill -9 of each process in turn while the demo plays: no result may change."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import psutil

from stack.embedded import EmbeddedStack
from stack.progress import say

LEAD_STEPS: Final = 300
_WORKER_MARK: Final = "pyflink.fn_execution"


class KillEach:
    """Kills one process at each of evenly spaced steps, with LEAD_STEPS of the replay still under way.

    Every supervised program, then every Python worker of the jobs, then the supervisor itself. A barrier before those
    steps makes sure that the stack has come back from the kill before.
    """

    def __init__(self, stack: EmbeddedStack, steps: int, barrier: Callable[[], None]) -> None:
        self._stack = stack
        self._barrier = barrier
        programs = sorted(state.name for state in stack.supervisor.states().values() if state.is_running)
        workers = [f"python worker {number}" for number in range(1, len(self._workers()) + 1)]
        self.victims = [*programs, *workers, "supervisord"]
        self.killed: list[str] = []
        self._is_back = False
        self._due = self._schedule(steps)
        self._next = next(self._due, None)

    def _schedule(self, steps: int) -> Iterator[tuple[int, str]]:
        for number, victim in enumerate(self.victims, 1):
            yield number * steps // (len(self.victims) + 1), victim

    def at(self, step: int) -> None:
        """Call at every step, from 0."""
        if self._next is None:
            return
        if not self._is_back and step >= self._next[0] - LEAD_STEPS:
            self._barrier()
            self._is_back = True
        if step < self._next[0]:
            return
        self._is_back = False
        name = self._next[1]
        self._next = next(self._due, None)
        pid = self._find(name)
        if pid is None:
            say(f"kill -9 {name}: it is not up")
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.killed.append(name)
        say(f"kill -9 {name} (pid {pid})")

    def _find(self, name: str) -> int | None:
        if name == "supervisord":
            return int(self._stack.home.supervisor_pid_file.read_text())
        if name.startswith("python worker"):
            workers = self._workers()
            number = int(name.rpartition(" ")[2]) - 1
            return workers[number] if number < len(workers) else None
        state = self._stack.supervisor.states().get(name)
        return state.pid if state is not None and state.pid else None

    def _workers(self) -> list[int]:
        """Processes under the TaskManager that run Python functions of the jobs."""
        states = self._stack.supervisor.states()
        found = []
        for program in self._stack.flink.programs():
            state = states.get(program.name)
            if state is None or not state.pid:
                continue
            with suppress(psutil.NoSuchProcess):
                for process in psutil.Process(state.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        if any(_WORKER_MARK in word for word in process.cmdline()):
                            found.append(process.pid)
        return sorted(found)
