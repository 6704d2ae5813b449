"""Applies a plan's faults: each waits until its turn, then for the first moment at which it makes sense."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from simulation.log import BatchFault
from simulation.plan import Fault, FaultKind, Role
from simulation.scheduler import KilledError, Scheduler, Task

BATCH_FAULTS: Final = {
    FaultKind.LOG_REFUSED: BatchFault.REFUSED,
    FaultKind.LOG_HOLE: BatchFault.HOLE,
    FaultKind.LOG_TAIL_LOST: BatchFault.TAIL_LOST,
    FaultKind.LOG_UNACKNOWLEDGED: BatchFault.UNACKNOWLEDGED,
    FaultKind.LOG_TWICE: BatchFault.TWICE,
}
SEND_FAULTS: Final = frozenset(
    {FaultKind.SEND_LOST_ANSWER, FaultKind.SEND_REFUSED, FaultKind.SEND_DEAD, FaultKind.SEND_SLOW}
)
ENDS: Final = frozenset({FaultKind.KILL, FaultKind.OLDER_CHECKPOINT, FaultKind.STATE_LOST})
NEVER: Final = 1 << 62
ZOMBIE_TURNS: Final = 400  # a process that woke up too late is found and ended at last


class Faults:
    """simulation.scheduler.Interference."""

    def __init__(
        self, faults: Sequence[Fault], scheduler: Scheduler, database_error: Callable[[], Exception],
        succeed: Callable[[Task, Fault], None], bury: Callable[[Task], None],
    ) -> None:  # fmt: skip
        """succeed: start what comes after a task that dies or stands still. bury: end what a dying one held."""
        self._scheduler, self._database_error = scheduler, database_error
        self._succeed, self._bury = succeed, bury
        self._coming = list(faults)
        self._armed: dict[str, list[Fault]] = {}
        self._doomed: list[tuple[int, Task]] = []
        self.struck: list[Fault] = []

    @property
    def last_turn(self) -> int:
        return self._coming[-1].turn if self._coming else 0

    def calm(self) -> None:
        """Nothing befalls anybody any more."""
        self._coming.clear()
        self._armed.clear()
        self._scheduler.struck_from = 0

    def strike(self, task: Task, point: str) -> None:
        turn = self._scheduler.turn
        while self._coming and self._coming[0].turn <= turn:
            fault = self._coming.pop(0)
            self._armed.setdefault(fault.role, []).append(fault)
        for doomed in [doomed for doomed in self._doomed if doomed[0] <= turn]:
            self._doomed.remove(doomed)
            self._bury(doomed[1])
            self._scheduler.kill(doomed[1])
        if not self._armed:
            turns = [*(fault.turn for fault in self._coming[:1]), *(at for at, _ in self._doomed)]
            self._scheduler.struck_from = min(turns, default=NEVER)
        for fault in self._armed.get(Role.OPERATOR, ()):
            if fault.kind is FaultKind.CLOCK_JUMP:
                self._take(fault)
                self._scheduler.clock.jump((fault.amount - 128) * 60_000)
                break
        for fault in self._armed.get(task.role, ()):
            if self._fits(fault, point):
                self._take(fault)
                self._apply(fault, task)
                return

    @staticmethod
    def _fits(fault: Fault, point: str) -> bool:
        kind = fault.kind
        if kind is FaultKind.DATABASE_AWAY:
            return point.startswith("db.") and point != "db.committed"
        if kind is FaultKind.COMMIT_UNKNOWN:
            return point == "db.committed"
        return kind in ENDS or kind is FaultKind.ZOMBIE

    def _take(self, fault: Fault) -> None:
        self._armed[fault.role].remove(fault)
        if not self._armed[fault.role]:
            del self._armed[fault.role]
        self.struck.append(fault)
        self._scheduler.note(f"{fault.kind} ({fault.amount})")
        self._scheduler.reached[f"fault:{fault.kind}"] += 1
        self._scheduler.reached[f"fault:{fault.kind}:{fault.role}"] += 1

    def _apply(self, fault: Fault, task: Task) -> None:
        if fault.kind in (FaultKind.DATABASE_AWAY, FaultKind.COMMIT_UNKNOWN):
            raise self._database_error()
        self._succeed(task, fault)
        if fault.kind is FaultKind.ZOMBIE:
            task.frozen_until_turn = self._scheduler.turn + 10 + fault.amount
            self._doomed.append((task.frozen_until_turn + ZOMBIE_TURNS, task))
            self._scheduler.struck_from = 0
            return
        self._bury(task)
        task.dying = True
        raise KilledError

    def batch_fault(self, records: int) -> tuple[BatchFault, int] | None:
        """For simulation.log."""
        task = self._scheduler.current
        if task is None:
            return None
        for fault in self._armed.get(task.role, ()):
            if fault.kind in BATCH_FAULTS and (records > 1 or fault.kind is not FaultKind.LOG_HOLE):
                self._take(fault)
                last = records - 1 if fault.kind is FaultKind.LOG_HOLE else records
                return BATCH_FAULTS[fault.kind], fault.amount % last
        return None

    def send_fault(self) -> FaultKind | None:
        """For simulation.network."""
        for fault in self._armed.get(Role.SEND, ()):
            if fault.kind in SEND_FAULTS:
                self._take(fault)
                return fault.kind
        return None
