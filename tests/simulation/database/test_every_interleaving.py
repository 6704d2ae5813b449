"""Every interleaving of a few actors over one alert: no order of their statements and commits gives it two ends.

Postgres in memory, which passes the suite of the real one; a depth-first walk over all choices of who goes on next,
each tried from the start. The real one's share is tests/finalizer/test_races.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import greenlet
import pytest

from contracts.vocabulary import Status
from finalizer.domain.lifecycle import Event, sources
from finalizer.ports import Moves, PositionsMovedError
from simulation.database.errors import ConstraintError
from simulation.database.table import Record, Row
from simulation.database.transaction import NO_KEY_UPDATE, Transaction
from tests.simulation.database.adapters import MemoryAdapter
from tests.simulation.database.world import END_MS, FINALIZED_MS, SHARD, TOPIC, World, claim, plan

# Where an actor may be overtaken: before each statement that meets another actor's rows, and before each commit.
POINTS = {
    "db.commit",
    *(
        f"db.statement:{name}"
        for name in (
            "trigger_alerts", "lock_refused", "refuse_claims", "expire_alerts", "cancel_alert",
            "pause_alert", "lock_alert", "resume_alert", "release_places",
        )
    ),
}  # fmt: skip
SHARD_OVER = END_MS  # the frontier at which the alert is due


class AllTurns:
    """simulation.turns.Turns: says for each actor when it can go on, and lets the walk choose."""

    def __init__(self) -> None:
        self._ready: dict[greenlet.greenlet, Callable[[], bool]] = {}

    def pause(self, point: str) -> None:
        if greenlet.getcurrent().parent is not None and point in POINTS:
            self.wait(point, lambda: True)

    def wait(self, point: str, ready: Callable[[], bool]) -> None:
        actor = greenlet.getcurrent()
        assert actor.parent is not None, f"nobody else runs at {point}"
        self._ready[actor] = ready
        actor.parent.switch()

    def play(self, works: list[Callable[[], Any]], choices: list[int]) -> tuple[list[Any], list[int]]:
        """What each came to, and how many could have gone on at each step; beyond `choices` the first one does."""
        came_to: list[Any] = [None] * len(works)

        def running(place: int) -> Callable[[], None]:
            def run() -> None:
                try:
                    came_to[place] = works[place]()
                except PositionsMovedError:
                    came_to[place] = "moved"

            return run

        actors = [greenlet.greenlet(running(place)) for place in range(len(works))]
        self._ready = {actor: lambda: True for actor in actors}
        for actor in actors:  # to their first point: nothing before it meets anybody
            actor.switch()
        widths: list[int] = []
        while alive := [actor for actor in actors if not actor.dead]:
            free = [actor for actor in alive if self._ready[actor]()]
            assert free, "all wait for each other"
            choice = choices[len(widths)] if len(widths) < len(choices) else 0
            widths.append(len(free))
            free[choice].switch()
        return came_to, widths


def walk(prepare: Callable[[AllTurns], tuple[list[Callable[[], Any]], Any]]) -> Iterator[tuple[list[Any], Any]]:
    """(what each actor came to, what `prepare` gave) of every interleaving."""
    choices: list[int] | None = []
    while choices is not None:
        turns = AllTurns()
        works, given = prepare(turns)
        came_to, widths = turns.play(works, choices)
        yield came_to, given
        choices += [0] * (len(widths) - len(choices))
        while choices and choices[-1] + 1 == widths[len(choices) - 1]:
            choices.pop()
        if choices:
            choices[-1] += 1
        else:
            choices = None


class Scene:
    """A world with one ACTIVE alert that is due, and what actors do to it."""

    def __init__(self, turns: AllTurns) -> None:
        adapter = MemoryAdapter()
        adapter.database.turns = turns  # type: ignore[assignment]
        self.adapter, self.world = adapter, World(adapter)
        (self.alert_id,) = self.world.create_active()
        self.world.set_frontier(SHARD_OVER)
        adapter.finalizer().positions("other.v1", 1)

    def _batch(self, topic: str, at_ms: int) -> Callable[[], Any]:
        position = self.adapter.finalizer().positions(topic, 1)[0]

        def work() -> Any:
            with self.adapter.finalizer().advance(Moves(topic, {0: (position, position + 1)})) as batch:
                outcome = batch.apply(plan(claims=[claim(self.alert_id, at_ms=at_ms)]), FINALIZED_MS)
            return "TRIGGERED" if outcome.triggered else "refused" if outcome.refused else ""

        return work

    def trigger(self) -> Callable[[], Any]:
        return self._batch(TOPIC, END_MS - 9)

    def trigger_elsewhere(self) -> Callable[[], Any]:
        """The same claim in a batch of another partition: not fenced by the first one's positions."""
        return self._batch("other.v1", END_MS - 9)

    def refuse(self) -> Callable[[], Any]:
        return self._batch("other.v1", END_MS)

    def expire(self) -> Callable[[], Any]:
        return lambda: "EXPIRED" if self.adapter.finalizer().expire(SHARD, SHARD_OVER, 10, FINALIZED_MS) else ""

    def _move(self, event: Event, said: str) -> Callable[[], Any]:
        def request(t: Any) -> str:
            moves = {Event.CANCEL: t.alerts.cancel, Event.PAUSE: t.alerts.pause, Event.RESUME: t.alerts.resume}
            return said if moves[event](self.world.owner_id, self.alert_id, sources(event)) else ""

        return lambda: self.adapter.api.transact(request)

    def cancel(self) -> Callable[[], Any]:
        return self._move(Event.CANCEL, "CANCELLED")

    def pause(self) -> Callable[[], Any]:
        return self._move(Event.PAUSE, "PAUSED")

    def resume(self) -> Callable[[], Any]:
        return self._move(Event.RESUME, "resumed")


def check(scene: Scene, came_to: list[Any]) -> str:
    """The alert's status, once everything that depends on it agrees."""
    (alert,) = scene.adapter.database.rows("alerts")
    (owner,) = [row for row in scene.adapter.database.rows("owners") if row["owner_id"] == scene.world.owner_id]
    commands = [row["action"] for row in scene.adapter.database.rows("rule_commands")]
    said = {what: came_to.count(what) for what in ("TRIGGERED", "CANCELLED", "EXPIRED", "PAUSED", "resumed", "refused")}
    ends = {what: said[what] for what in ("TRIGGERED", "CANCELLED", "EXPIRED")}
    over = alert["status"] in ends
    assert ends == {what: int(alert["status"] == what) for what in ends}, (alert["status"], came_to)
    assert len(scene.adapter.database.rows("triggers")) == (alert["status"] == "TRIGGERED")
    assert owner["live_alerts"] == (not over)
    assert commands.count("remove") == over + said["PAUSED"]
    assert commands.count("create") == 1 + said["resumed"] + said["refused"]
    assert alert["version"] == 1 + said["resumed"] + said["refused"]
    return str(alert["status"])


CASTS: list[tuple[tuple[str, ...], set[str]]] = [
    (("trigger", "expire", "cancel"), {"TRIGGERED", "EXPIRED", "CANCELLED"}),
    (("trigger", "expire", "pause"), {"TRIGGERED", "EXPIRED", "PAUSED"}),
    (("trigger", "cancel", "pause"), {"TRIGGERED", "CANCELLED"}),
    (("expire", "cancel", "pause"), {"EXPIRED", "CANCELLED"}),  # what is paused can be cancelled
    (("trigger", "trigger", "cancel"), {"TRIGGERED", "CANCELLED"}),
    (("trigger", "trigger_elsewhere", "cancel"), {"TRIGGERED", "CANCELLED"}),
    (("trigger", "pause", "resume"), {"TRIGGERED", "PAUSED", "PENDING"}),
    (("refuse", "cancel", "expire"), {"CANCELLED", "EXPIRED"}),
    (("refuse", "expire", "pause"), {"PENDING", "EXPIRED", "PAUSED"}),
    (("trigger", "expire", "cancel", "pause"), {"TRIGGERED", "EXPIRED", "CANCELLED"}),
    (("refuse", "trigger", "pause"), {"PENDING", "TRIGGERED", "PAUSED"}),
]


def explore(cast: tuple[str, ...]) -> dict[str, int]:
    """End -> interleavings that come to it."""

    def prepare(turns: AllTurns) -> tuple[list[Callable[[], Any]], Scene]:
        scene = Scene(turns)
        return [getattr(scene, name)() for name in cast], scene

    ends: dict[str, int] = {}
    for came_to, scene in walk(prepare):
        end = check(scene, came_to)
        ends[end] = ends.get(end, 0) + 1
    return ends


@pytest.mark.parametrize(("cast", "reachable"), CASTS, ids=["-".join(cast) for cast, _ in CASTS])
def test_no_order_of_the_actors_gives_two_ends(cast: tuple[str, ...], reachable: set[str]) -> None:
    ends = explore(cast)
    assert set(ends) == reachable
    assert sum(ends.values()) > 10


def test_the_walk_finds_a_database_that_does_not_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An UPDATE that goes by the version it saw, though it has waited for one that changed it: two ends."""

    def take(self: Transaction, record: Record, holds: Callable[[Row], bool]) -> Row | None:
        seen = self.see(record)
        return self.lock(record, NO_KEY_UPDATE) if seen is not None and holds(seen) else None

    monkeypatch.setattr(Transaction, "take", take)
    with pytest.raises((AssertionError, ConstraintError)):
        explore(("trigger", "cancel", "pause"))


def test_every_status_is_an_end_or_lives_on() -> None:
    """The casts reach every status but ACTIVE, which each of them leaves."""
    assert set().union(*(reachable for _, reachable in CASTS)) == {str(status) for status in Status} - {"ACTIVE"}
