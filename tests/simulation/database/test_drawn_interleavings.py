"""Drawn transactions that meet in a drawn order, on Postgres and in memory: who waits, what each comes to and every row
must be the same. A seed on which somebody is a deadlock's victim ends in memory: the server may choose another one.

`ALERTS_TEST_DATABASE_SEEDS=500` runs more seeds than the usual ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from contracts.vocabulary import Status
from finalizer.ports import Moves
from sql.connection import Pool
from tests.simulation.database.adapters import TABLES, Adapter, MemoryAdapter, PostgresAdapter
from tests.simulation.database.player import comparable
from tests.simulation.database.stages import Actor, Hold, State
from tests.simulation.database.world import END_MS, FINALIZED_MS, SHARD, World, activated, claim, plan

USUAL_SEEDS = 40
SEEDS = max(USUAL_SEEDS, int(os.environ.get("ALERTS_TEST_DATABASE_SEEDS", "0")))
ACTORS = 4
ALERTS = 4
MAX_OUTCOMES = 300
Part = Callable[[World, Any], Any]


class Script:
    """What each actor does, part by part, and in which order they are let on."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.actors = [self._actor(number) for number in range(ACTORS)]
        self.order = [self.random.randrange(1 << 20) for _ in range(40)]
        self.statuses = [self.random.choice(("PENDING", "ACTIVE", "ACTIVE", "PAUSED")) for _ in range(ALERTS)]
        self.quota = self.random.choice((5, 6, 100))

    def _actor(self, number: int) -> tuple[str, list[Any], bool]:
        kind = self.random.choice(("request", "request", "batch", "sweep", "relay"))
        parts = {"request": self._request, "batch": self._plan}.get(kind)
        count = self.random.randint(1, 3)
        topic = self.random.choice(("candidates.v1", f"other-{number}.v1"))
        given = [parts() for _ in range(count)] if parts else [self.random.randint(1, 5)]
        return kind, [topic, *given] if kind == "batch" else given, self.random.random() < 0.25

    def _alert(self) -> int:
        return self.random.randint(1, ALERTS)

    def _request(self) -> tuple[Any, ...]:
        key = self.random.choice((None, "k", "l"))
        return self.random.choice(
            (
                ("cancel", self._alert()), ("cancel", self._alert()), ("pause", self._alert()),
                ("resume", self._alert()), ("find", self._alert()), ("create", key), ("create", key),
                ("channel", f"{self.random.randrange(2)}@example.org"), ("disable", self.random.randint(1, 2)),
            )
        )  # fmt: skip

    def _plan(self) -> Any:
        ids = self.random.sample(range(1, ALERTS + 1), self.random.randint(1, 3))
        activations, claims = [activated(ids[0])], [
            claim(i, version=self.random.choice((1, 1, 1, 2)), at_ms=self.random.choice((END_MS - 9, END_MS)))
            for i in ids
        ]  # fmt: skip
        return plan(activations if self.random.random() < 0.3 else [], claims)


def prepare(adapter: Adapter, script: Script) -> World:
    world = World(adapter)
    world.set_quota(script.quota)
    for place, status in enumerate(script.statuses):
        alert_id = world.create(expires_at_ms=END_MS - ALERTS + place)
        if status != "PENDING":
            world.apply(activations=[activated(alert_id)])
        if status == "PAUSED":
            adapter.api.transact(lambda t, i=alert_id: t.alerts.pause(1, i, [Status.ACTIVE]))
    world.trigger(*[i for i, status in enumerate(script.statuses, 1) if status == "ACTIVE"][:1])
    world.set_frontier(END_MS)
    for number in range(ACTORS):
        adapter.finalizer().positions(f"other-{number}.v1", 1)
    return world


def work_of(world: World, kind: str, parts: list[Any], fails: bool) -> Callable[[Hold], Any]:
    adapter = world.adapter

    def end() -> None:
        if fails:
            raise ZeroDivisionError

    def request(hold: Hold) -> Any:
        def run(t: Any) -> list[Any]:
            found = []
            for part in parts:
                found.append(ask(world, t, *part))
                hold()
            end()
            return found

        return adapter.api.transact(run)

    def batch(hold: Hold) -> Any:
        found = []
        position = adapter.finalizer().positions(parts[0], 1)[0]
        with adapter.finalizer().advance(Moves(parts[0], {0: (position, position + 1)})) as work:
            for given in parts[1:]:
                outcome = work.apply(given, FINALIZED_MS)
                found.append((outcome.activated, sorted(outcome.triggered), sorted(outcome.refused)))
                hold()
            end()
        return found

    def relay(hold: Hold) -> Any:
        with adapter.trigger_relay().unpublished(parts[0]) as work:
            hold()
            work.mark_published()
            hold()
            end()
        return [trigger.trigger_id for trigger in work.triggers]

    def sweep(_: Hold) -> Any:
        return adapter.finalizer().expire(SHARD, END_MS, parts[0], FINALIZED_MS)

    return {"request": request, "batch": batch, "relay": relay, "sweep": sweep}[kind]


def ask(world: World, t: Any, what: str, given: Any) -> Any:
    if what == "create":
        new = world.new_alert(t, idempotency_key=given, request_hash=None if given is None else b"")
        return t.alerts.insert(new)
    if what == "find":
        return t.alerts.find(world.owner_id, given, {})
    if what == "channel":
        return t.channels.insert(world.owner_id, "email", given, None, 2)
    if what == "disable":
        return t.channels.disable(world.owner_id, given)
    froms = {
        "cancel": {Status.PENDING, Status.ACTIVE, Status.PAUSED},
        "pause": {Status.ACTIVE},
        "resume": {Status.PAUSED},
    }
    return getattr(t.alerts, what)(world.owner_id, given, froms[what])


def play(adapter: Adapter, script: Script) -> list[Any]:
    """The states after each step, what everybody came to, and every row."""
    world = prepare(adapter, script)
    stage, seen = adapter.stage, []
    actors: list[Actor] = []
    for draw in script.order:
        held = [actor for actor in actors if actor.state is State.HELD]
        choices: list[Actor | None] = [*held, *([None] if len(actors) < ACTORS else [])]
        if not choices:
            break
        actor = choices[draw % len(choices)]
        if actor is None:
            actors.append(stage.start(work_of(world, *script.actors[len(actors)])))
        else:
            stage.go_on(actor)
        seen.append([str(actor.state) for actor in actors])
    stage.finish()
    for actor in actors:
        error = actor.error
        seen.append(comparable(actor.value) if error is None else (type(error).__name__, str(error)))
    for table in TABLES:
        rows = [{k: v for k, v in row.items() if k not in ("command_id", "payload")} for row in adapter.rows(table)]
        seen.append((table, sorted(rows, key=str)))
    return seen


class Choices:
    """Picks as told, then the first of each; `next` is what to tell so that all are tried in turn."""

    def __init__(self, told: list[int]) -> None:
        self._told = told
        self._taken: list[tuple[int, int]] = []

    def pick(self, count: int) -> int:
        place = len(self._taken)
        self._taken.append((self._told[place] if place < len(self._told) else 0, count))
        return self._taken[-1][0]

    def next(self) -> list[int] | None:
        while self._taken and self._taken[-1][0] + 1 == self._taken[-1][1]:
            self._taken.pop()
        if not self._taken:
            return None
        return [choice for choice, _ in self._taken[:-1]] + [self._taken[-1][0] + 1]


def outcomes(seed: int) -> Iterator[tuple[list[Any], bool]]:
    """What can come of a script, and whether a deadlock did: two that one commit wakes race for what both want."""
    told: list[int] | None = []
    for _ in range(MAX_OUTCOMES):
        if told is None:
            return
        memory, choices = MemoryAdapter(), Choices(told)
        memory.stage.choose = choices.pick
        yield play(memory, Script(seed)), memory.database.deadlocks > 0
        told = choices.next()


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_transactions_meet_as_in_postgres(seed: int, suite_pool: Pool) -> None:
    first, deadlock = next(outcomes(seed))
    if deadlock:
        return
    real = play(PostgresAdapter(suite_pool), Script(seed))
    if any(simulated == real or deadlock for simulated, deadlock in outcomes(seed)):
        return
    for number, (found, wanted) in enumerate(zip(first, real, strict=True)):
        assert found == wanted, (number, Script(seed).actors)


def test_most_drawn_scripts_meet_and_few_end_in_a_deadlock() -> None:
    waits = deadlocks = 0
    for seed in range(1, USUAL_SEEDS + 1):
        memory = MemoryAdapter()
        waits += any("blocked" in states for states in play(memory, Script(seed)) if isinstance(states, list))
        deadlocks += memory.database.deadlocks > 0
    assert waits > USUAL_SEEDS // 3
    assert deadlocks < USUAL_SEEDS // 4
