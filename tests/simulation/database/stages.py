"""Where transactions meet: actors that hold in the middle of one, while others run on, wait for a lock or end.

One script, two runners: threads over Postgres, which says who waits for a lock, and greenlets in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import greenlet

from sql.connection import Pool

SETTLE_SECONDS = 20

Hold = Callable[[], None]


class State(StrEnum):
    """Where an actor is when nothing moves."""

    RUNNING = "running"
    HELD = "held"
    BLOCKED = "blocked"
    ENDED = "ended"


class Actor:
    """What one of them came to."""

    def __init__(self) -> None:
        self.state = State.RUNNING
        self.value: Any = None
        self.error: BaseException | None = None
        self.may_go = threading.Event()
        self.ready: Callable[[], bool] | None = None
        self.greenlet: greenlet.greenlet | None = None

    def run(self, work: Callable[[Hold], Any], hold: Hold) -> None:
        try:
            self.value = work(hold)
        except Exception as error:
            self.error = error
        self.state = State.ENDED

    def result(self) -> Any:
        """What its work returned or raised; it has ended."""
        assert self.state is State.ENDED, self.state
        if self.error is not None:
            raise self.error
        return self.value


class ThreadStage:
    """Actors are threads, each with a connection of the pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._actors: list[Actor] = []

    def start(self, work: Callable[[Hold], Any]) -> Actor:
        """Run `work` until it holds, waits for a lock, or ends."""
        actor = Actor()

        def hold() -> None:
            actor.state = State.HELD
            assert actor.may_go.wait(SETTLE_SECONDS)
            actor.may_go.clear()

        self._actors.append(actor)
        threading.Thread(target=actor.run, args=(work, hold), daemon=True).start()
        self._settle()
        return actor

    def go_on(self, actor: Actor) -> None:
        """A held one runs on; so do those that its end frees."""
        assert actor.state is State.HELD, actor.state
        actor.state = State.RUNNING
        actor.may_go.set()
        self._settle()

    def _settle(self) -> None:
        """Until nobody moves: whoever is not held and has not ended waits for a lock that is not granted."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            moving = self._moving()
            waiting = self._waiting()
            if len(moving) == waiting and moving == self._moving():
                for actor in moving:
                    actor.state = State.BLOCKED
                return
        raise AssertionError([actor.state for actor in self._actors])

    def _moving(self) -> list[Actor]:
        return [actor for actor in self._actors if actor.state in (State.RUNNING, State.BLOCKED)]

    def _waiting(self) -> int:
        statement = """SELECT count(*) AS waiting FROM pg_stat_activity
                        WHERE application_name = %s AND cardinality(pg_blocking_pids(pid)) > 0"""
        with self._pool.connection() as connection:
            row = connection.execute(statement, (self._pool.name,)).fetchone()
        assert row is not None
        return int(row["waiting"])

    def finish(self) -> None:
        """Until all have ended: the server has broken every deadlock."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while any(actor.state is not State.ENDED for actor in self._actors):
            for actor in self._actors:
                if actor.state is State.HELD:
                    actor.may_go.set()
            assert time.monotonic() < deadline, [actor.state for actor in self._actors]
            self._waiting()


class GreenletStage:
    """Actors are greenlets; simulation.turns.Turns for the database that they use.

    Whoever has waited longest goes on first; `choose` may want another order: it picks one of so many.
    """

    def __init__(self) -> None:
        self.choose: Callable[[int], int] = lambda _: 0
        self._actors: list[Actor] = []
        self._blocked: list[Actor] = []  # in the order in which they wait
        self._current: Actor | None = None
        self._holds: dict[tuple[Actor | None, str], Hold] = {}

    # -- Turns
    def pause(self, point: str) -> None:
        hold = self._holds.pop((self._current, point), None)
        if hold is not None:
            hold()
        if self._free() and self.choose(2) == 0:
            self.wait(point, lambda: True)

    def wait(self, point: str, ready: Callable[[], bool]) -> None:
        actor = self._current
        assert actor is not None, f"nobody can wait at {point}"
        actor.ready, actor.state = ready, State.BLOCKED
        self._blocked.append(actor)
        self._leave()

    def _leave(self) -> None:
        self._current = None
        assert greenlet.getcurrent().parent is not None
        greenlet.getcurrent().parent.switch()

    @contextmanager
    def holding_at(self, point: str, hold: Hold) -> Iterator[None]:
        """The present actor's next pause at `point` holds."""
        self._holds[self._current, point] = hold
        yield

    # -- as ThreadStage
    def start(self, work: Callable[[Hold], Any]) -> Actor:
        actor = Actor()

        def hold() -> None:
            actor.state = State.HELD
            self._leave()

        actor.greenlet = greenlet.greenlet(lambda: actor.run(work, hold))
        self._actors.append(actor)
        self._enter(actor)
        self._settle()
        return actor

    def _enter(self, actor: Actor) -> None:
        assert actor.greenlet is not None
        actor.state, self._current = State.RUNNING, actor
        actor.greenlet.switch()
        self._current = None

    def go_on(self, actor: Actor) -> None:
        assert actor.state is State.HELD, actor.state
        self._enter(actor)
        self._settle()

    def _settle(self) -> None:
        while True:
            free = self._free()
            if not free:
                return
            actor = free[self.choose(len(free))]
            self._blocked.remove(actor)
            self._enter(actor)

    def _free(self) -> list[Actor]:
        return [actor for actor in self._blocked if actor.ready is not None and actor.ready()]

    def finish(self) -> None:
        while held := [actor for actor in self._actors if actor.state is State.HELD]:
            self.go_on(held[0])
        assert all(actor.state is State.ENDED for actor in self._actors), [actor.state for actor in self._actors]
