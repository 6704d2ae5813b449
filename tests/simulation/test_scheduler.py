"""The scheduler under its own faults."""

from __future__ import annotations

from simulation.clock import SimulatedClock
from simulation.scheduler import Scheduler


def test_a_task_that_never_began_may_be_killed_twice() -> None:
    scheduler = Scheduler(1, SimulatedClock())
    ran: list[str] = []
    task = scheduler.spawn("one", "client", lambda: ran.append("one"))
    scheduler.spawn("two", "client", lambda: ran.append("two"))
    scheduler.kill(task)
    scheduler.kill(task)
    scheduler.run(lambda: not scheduler.tasks or bool(ran), 100)
    assert ran == ["two"]
