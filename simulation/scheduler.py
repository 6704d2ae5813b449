"""Tasks in one thread, one at a time, whose order is drawn from a seed: a greenlet each, switched at every pause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from greenlet import greenlet

from simulation.clock import SimulatedClock

MAX_TASKS: Final = 200
STAY: Final = 128  # of 256: how often a pause doesn't give the turn away
STEPS_MS: Final = (0, 0, 1, 1, 2, 3, 5, 12)  # what a turn may take


class KilledError(BaseException):
    """Ends a task where it stands, as kill -9 does: nothing of it may go on."""


class StuckError(RuntimeError):
    """The world did not come to rest; says who still does what."""


class Interference(Protocol):
    """Decides what befalls a task at a pause."""

    def strike(self, task: Task, point: str) -> None:
        """May raise an error into the task, kill or freeze it."""
        ...


class Task:
    """One thread of control. `role` says what it is, `name` which one of them."""

    __slots__ = ("dying", "error", "frozen_until_turn", "greenlet", "name", "point", "ready", "role", "wake_ms")

    def __init__(self, name: str, role: str, work: greenlet) -> None:
        self.name, self.role, self.greenlet = name, role, work
        self.wake_ms: int | None = None  # asleep until then
        self.ready: Callable[[], bool] | None = None  # waits for that
        self.frozen_until_turn = 0
        self.dying = False
        self.point = "start"
        self.error: BaseException | None = None  # what it ended with, if not with its work


class Scheduler:
    """simulation.turns.Turns for everything that runs under it."""

    def __init__(self, seed: int, clock: SimulatedClock) -> None:
        self._random = Random(f"schedule/{seed}")  # noqa: S311  (a simulation's seed, no secret)
        self._bytes = b""
        self._next_byte = 0
        self.clock = clock
        clock.sleep = self.sleep
        self.interference: Interference | None = None
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self._home = greenlet.getcurrent()
        self.turn = 0
        self.struck_from = 0  # before this turn nothing strikes
        self.trace: list[tuple[int, str, str]] = []
        self.reached: Counter[str] = Counter()

    # -- tasks
    def spawn(self, name: str, role: str, work: Callable[[], None]) -> Task:
        if len(self.tasks) >= MAX_TASKS:
            raise StuckError(f"{MAX_TASKS} tasks at once")
        task = Task(name, role, None)  # its work is set below: it needs its task

        def run() -> None:
            try:
                work()
            except KilledError:
                pass
            except Exception as error:
                task.error = error

        task.greenlet = greenlet(run, parent=self._home)
        self.tasks.append(task)
        return task

    def kill(self, task: Task) -> None:
        """The task never runs its own code again, but for the unwinding that frees what it held."""
        if task.greenlet.dead:
            return
        task.dying, task.frozen_until_turn = True, 0
        self.note("killed", task)
        if task is self.current:
            raise KilledError
        if task.greenlet:
            self._enter(task, KilledError())
        elif task in self.tasks:  # it never began; two faults in one turn may strike it
            self.tasks.remove(task)

    def note(self, what: str, task: Task | None = None) -> None:
        """Into the history."""
        task = task or self.current
        self.trace.append((self.turn, task.name if task else "-", what))

    # -- what tasks call
    def pause(self, point: str) -> None:
        task = self.current
        if task is None:
            return
        if task.dying:
            raise KilledError
        task.point = point
        turn = self.turn
        self.trace.append((turn, task.name, point))
        if turn >= self.struck_from and self.interference is not None:
            self.interference.strike(task, point)
        if task.frozen_until_turn or self._byte() >= STAY:
            self._home.switch()
            if task.dying:
                raise KilledError

    def wait(self, point: str, ready: Callable[[], bool]) -> None:
        """A task that waits can be killed, but not otherwise disturbed."""
        task = self.current
        if task is None or task.dying:
            if not ready():
                raise KilledError
            return
        while not ready():
            task.point, task.ready = point, ready
            self.reached["waited:" + point.partition(":")[0]] += 1
            self._leave(task)

    def sleep(self, ms: int) -> None:
        task = self.current
        if task is None:
            self.clock.advance(ms)
            return
        if task.dying:
            raise KilledError
        task.wake_ms = self.clock.now_ms + ms
        task.point = "asleep"
        self._leave(task)

    def _leave(self, task: Task) -> None:
        self._home.switch()
        if task.dying:
            raise KilledError

    # -- the loop
    def run(self, until: Callable[[], bool], max_turns: int) -> None:
        """Give turns until `until()`, asked now and then. Raises StuckError."""
        last = self.turn + max_turns
        while True:
            if self.turn & 31 == 0 and until():
                return
            if self.turn >= last:
                raise StuckError(f"no rest after {max_turns} turns: " + self._describe())
            self.turn += 1
            task = self._choose()
            if task is None:
                continue
            self.clock.now_ms += STEPS_MS[self._byte() & 7]
            task.wake_ms = task.ready = None
            task.frozen_until_turn = 0
            self._enter(task)

    def _enter(self, task: Task, error: BaseException | None = None) -> None:
        before, self.current = self.current, task
        home, self._home = self._home, greenlet.getcurrent()
        task.greenlet.parent = self._home
        try:
            if error is None:
                task.greenlet.switch()
            else:
                task.greenlet.throw(error)
        finally:
            self.current, self._home = before, home
        if task.greenlet.dead:
            self.tasks.remove(task)
            if task.error is not None:
                raise task.error

    def _choose(self) -> Task | None:
        now, turn = self.clock.now_ms, self.turn
        able = []
        for task in self.tasks:
            wake_ms = task.wake_ms
            if wake_ms is not None:
                if wake_ms > now:
                    continue
            elif task.ready is not None and not task.ready():
                continue
            if task.frozen_until_turn <= turn:
                able.append(task)
        if able:
            return able[self._byte() * len(able) >> 8]
        wakes = [task.wake_ms for task in self.tasks if task.wake_ms is not None and task.frozen_until_turn <= turn]
        if wakes:
            self.clock.now_ms = max(now, min(wakes))
        elif not any(task.frozen_until_turn > turn for task in self.tasks):
            raise StuckError("everybody waits for somebody: " + self._describe())
        return None

    def draw(self, below: int) -> int:
        """A number of this seed, below 256 and `below`."""
        return self._byte() * below >> 8

    def _byte(self) -> int:
        if self._next_byte == len(self._bytes):
            self._bytes, self._next_byte = self._random.randbytes(1024), 0
        self._next_byte += 1
        return self._bytes[self._next_byte - 1]

    def _describe(self) -> str:
        return ", ".join(f"{task.name} at {task.point}" for task in self.tasks) or "nobody is there"

    def close(self) -> None:
        """End every task, so that nothing of a world outlives it."""
        for task in list(self.tasks):
            self.kill(task)
