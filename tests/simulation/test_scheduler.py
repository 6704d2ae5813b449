"""The scheduler under its own faults."""

from __future__ import annotations

from simulation.clock import SimulatedClock
from simulation.scheduler import Scheduler


def test_a_task_that_never_began_may_be_killed_twice() -> None:
    """As when two faults strike it in one turn."""
    scheduler = Scheduler(1, SimulatedClock())
    task = scheduler.spawn("one", "client", lambda: None)
    scheduler.spawn("two", "client", lambda: None)
    scheduler.kill(task)
    scheduler.kill(task)
    assert [left.name for left in scheduler.tasks] == ["two"]
