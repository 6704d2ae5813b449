"""In memory alone: what a kill or a broken connection at any turn leaves behind, and who sees what while one waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from api.alerts.schemas import NewChangeAlert
from api.alerts.service import AlertService
from api.principal import Principal
from feeds.ports import StoreAwayError
from finalizer.channels.outcome import Result
from finalizer.ports import Moves, NewDelivery, Settled
from simulation.database.alert_store import MemoryAlertStore
from simulation.database.engine import MemoryDatabase
from simulation.database.errors import DatabaseAwayError, TransactionOverError
from simulation.database.relay_store import MemoryRuleRelayStore
from simulation.turns import DeadlockedError, NoTurns
from tests.finalizer.settable_clock import SettableClock
from tests.simulation.database.adapters import TABLES, MemoryAdapter
from tests.simulation.database.stages import State
from tests.simulation.database.world import END_MS, LIVE, SHARD, START_MS, TRIGGERS, World, claim, plan


class KilledError(BaseException):
    """As a scheduler ends a task."""


class Breaking:
    """Turns that raise at one of them, and keep the points passed."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self.at: int | None = None
        self.error: type[BaseException] = KilledError

    def pause(self, point: str) -> None:
        self.points.append(point)
        if self.at is not None and len(self.points) > self.at:
            self.at = None
            raise self.error(point)

    def wait(self, point: str, ready: Callable[[], bool]) -> None:
        assert ready(), f"{point}: something is still held"

    def break_at(self, turn: int, error: type[BaseException]) -> None:
        """0 is the next turn."""
        self.points.clear()
        self.at, self.error = turn, error


class Broken:
    """A world of every kind of row, one operation of each store, and turns that break."""

    def __init__(self) -> None:
        adapter = MemoryAdapter()
        self.world, self.database, self.turns = World(adapter), adapter.database, Breaking()
        world = self.world
        self.fired, self.running = world.create_active(2)
        self.waiting, self.due = world.create(), world.create(expires_at_ms=END_MS - 5)
        self.channel_id = world.add_channel()
        world.trigger(self.fired)
        with adapter.trigger_relay().unpublished(1) as work:
            self.trigger_id = work.triggers[0].trigger_id
        store = adapter.deliveries()
        store.positions(TRIGGERS, 1)
        store.accept(Moves(TRIGGERS, {0: (0, 1)}), [self._delivery()], 1)
        (self.delivery,) = store.claim(1, 1, 1)
        self.fences = adapter.rule_relay().take([SHARD])
        adapter.feeds().take_lease("stocks", "{}")
        world.set_frontier(END_MS - 5)
        self.moves = world.moves()
        self.database.turns = self.turns

    def _delivery(self) -> NewDelivery:
        return NewDelivery(self.trigger_id, self.world.owner_id, [self.channel_id], b"body")

    def operations(self) -> dict[str, Callable[[], Any]]:
        world, adapter = self.world, self.world.adapter
        relay, gateway, reference = adapter.rule_relay(), adapter.feeds(), adapter.reference()

        def finalize() -> None:
            with adapter.finalizer().advance(self.moves) as work:
                work.apply(plan(claims=[claim(self.running)]), 1)

        def publish_triggers() -> None:
            with adapter.trigger_relay().unpublished(9) as work:
                work.mark_published()

        settled = Settled(self.delivery, Result.DEAD, "", 0, True)
        return {
            "create": lambda: world.create(idempotency_key="k", request_hash=b""),
            "cancel": lambda: world.cancel(self.running),
            "finalize": finalize,
            "expire": lambda: adapter.finalizer().expire(SHARD, END_MS - 5, 9, 1),
            "lead": lambda: relay.lead() and relay.break_session(),
            "take": lambda: relay.take([SHARD, "other"]),
            "number": lambda: relay.number(self.fences, 9),
            "mark": lambda: relay.mark_published(self.fences, [1]),
            "publish": publish_triggers,
            "accept": lambda: adapter.deliveries().accept(Moves(TRIGGERS, {0: (1, 2)}), [self._delivery()], 1),
            "claim": lambda: adapter.deliveries().claim(9, 99, 1),
            "settle": lambda: adapter.deliveries().settle([settled], 1),
            "lease": lambda: gateway.take_lease("coins", "{}"),
            "controls": lambda: gateway.number_controls("stocks", 1, 9),
            "channel": lambda: world.add_channel("email", "new@example.org"),
            "split": lambda: reference.add_split("AAA", START_MS, 2, 1),
            "routing": lambda: reference.set_routing("BTC", 3),
        }

    def rows(self) -> dict[str, Any]:
        return {table: self.database.rows(table) for table in TABLES}

    def held(self) -> list[Any]:
        """Whatever a transaction has left behind."""
        records = [record for table in self.database.tables().values() for record in table.records.values()]
        return [r for r in records if r.locks is not None or r.writer is not None or r.pending is not None]


@pytest.mark.parametrize("name", list(Broken().operations()))
def test_a_kill_at_any_turn_leaves_all_or_nothing(name: str) -> None:
    whole = Broken()
    before = whole.rows()
    whole.operations()[name]()
    after, points = whole.rows(), whole.turns.points
    assert (points[-2:], set(points[:-2])) == (["db.commit", "db.committed"], {p for p in points if ":" in p})
    for turn, point in enumerate(points):
        broken = Broken()
        broken.turns.break_at(turn, KilledError)
        with pytest.raises(KilledError, match=point):
            broken.operations()[name]()
        assert broken.rows() == (after if point == "db.committed" else before), (turn, point)
        assert broken.held() == []
        if point != "db.committed":  # what was let go can be had again
            broken.operations()[name]()
            shown = {table: [set(row) for row in rows] for table, rows in broken.rows().items()}
            assert shown == {table: [set(row) for row in rows] for table, rows in after.items()}


def test_a_broken_connection_is_the_feed_stores_own_error() -> None:
    broken = Broken()
    for turn in range(4):
        broken.turns.break_at(turn, DatabaseAwayError)
        with pytest.raises(StoreAwayError):
            broken.world.adapter.feeds().number_controls("stocks", 1, 9)


@pytest.mark.parametrize(("turn", "tries"), [(0, 2), (1, 2), (2, 1), (3, 1)])
def test_a_request_is_tried_again_until_its_commit(turn: int, tries: int) -> None:
    broken = Broken()
    broken.turns.break_at(turn, DatabaseAwayError)
    if tries == 2:
        alert_id = broken.world.create()
        assert broken.world.commands()[-1] == (alert_id, 1, "create")
    else:
        with pytest.raises(DatabaseAwayError):
            broken.world.create()
    created = [row for row in broken.database.rows("alerts") if row["alert_id"] > broken.due]
    assert len(created) == (0 if broken.turns.points[-1] == "db.commit" else 1)


def test_a_database_that_stays_away_is_an_error_after_three_tries() -> None:
    class Away(Breaking):
        def pause(self, point: str) -> None:
            self.points.append(point)
            raise DatabaseAwayError(point)

    broken = Broken()
    broken.database.turns = away = Away()
    with pytest.raises(DatabaseAwayError):
        broken.world.cancel(broken.running)
    assert away.points == ["db.statement:cancel_alert"] * 3


def test_the_service_of_the_api_runs_over_it() -> None:
    world = World(MemoryAdapter())
    service = AlertService(world.adapter.api, world.adapter.clock, 1_000)
    owner = Principal(world.owner_id, "key", frozenset())
    request = NewChangeAlert(kind="change", symbol="BTC", window="1h", direction="UP", threshold_bps=500)
    created = service.create(owner, request, "k")
    assert service.create(owner, request, "k").alert == created.alert
    assert service.cancel(owner, created.alert.alert_id).status == "CANCELLED"
    assert service.page(owner, None, None, None, 10)[0][0].alert_id == created.alert.alert_id
    assert service.deliveries(owner, created.alert.alert_id) == []


@pytest.mark.parametrize("error", [DatabaseAwayError, KilledError])
@pytest.mark.parametrize("turn", range(3))
def test_a_leader_is_none_any_more_wherever_its_resignation_breaks(turn: int, error: type[BaseException]) -> None:
    broken = Broken()
    first, second = (MemoryRuleRelayStore(broken.database) for _ in range(2))
    assert first.lead()
    broken.turns.break_at(turn, error)
    if error is KilledError:
        with pytest.raises(KilledError):
            first.resign()
    else:
        first.resign()
    assert second.lead()


@pytest.mark.parametrize("turn", range(3))
def test_who_is_killed_while_becoming_the_leader_is_none(turn: int) -> None:
    broken = Broken()
    broken.turns.break_at(turn, KilledError)
    with pytest.raises(KilledError):
        MemoryRuleRelayStore(broken.database).lead()
    assert MemoryRuleRelayStore(broken.database).lead()


def test_a_transaction_that_has_failed_takes_nothing_more() -> None:
    broken = Broken()
    tx = broken.database.transaction()
    broken.turns.break_at(0, DatabaseAwayError)
    store = MemoryAlertStore(broken.database, tx)
    with pytest.raises(DatabaseAwayError):
        store.cancel(broken.world.owner_id, broken.running, LIVE)
    with pytest.raises(TransactionOverError):
        store.cancel(broken.world.owner_id, broken.running, LIVE)
    with pytest.raises(TransactionOverError):
        tx.commit()


def test_outside_a_simulation_a_wait_is_an_error_and_lets_go() -> None:
    database = MemoryDatabase(SettableClock(1), NoTurns())
    relay = MemoryRuleRelayStore(database)
    relay.take([SHARD])
    with database.transaction() as tx:
        tx.statement("hold")
        tx.lock(database.shard_relays.primary.records[SHARD], 2)
        with pytest.raises(DeadlockedError, match="shard_relays"):
            relay.take([SHARD])
    assert relay.take([SHARD]) == {SHARD: 2}


def test_who_is_killed_while_it_waits_is_waited_for_by_nobody() -> None:
    adapter = MemoryAdapter()
    world, stage = World(adapter), adapter.stage
    first, second = world.create(), world.create()
    holder = stage.start(lambda hold: adapter.hold_row("alerts", second, hold))

    def both(_: Any) -> Any:
        return adapter.api.transact(lambda t: [t.alerts.cancel(world.owner_id, i, LIVE) for i in (first, second)])

    waiting = stage.start(both)
    behind = stage.start(lambda _: world.cancel(first))
    assert (waiting.state, behind.state) == (State.BLOCKED, State.BLOCKED)
    assert waiting.greenlet is not None
    with pytest.raises(KilledError):
        waiting.greenlet.throw(KilledError())
    waiting.state = State.ENDED
    stage.go_on(holder)
    assert behind.result()
    assert [world.status(alert_id) for alert_id in (first, second)] == ["CANCELLED", "PENDING"]
    assert adapter.database.waiting == 0


def test_a_batch_that_refuses_holds_no_owner_yet() -> None:
    """Else it and a cancel of that owner could wait for each other."""
    adapter = MemoryAdapter()
    world, stage = World(adapter), adapter.stage
    fired, outside = world.create_active(2)
    moves = world.moves()

    def finalize(hold: Any) -> Any:
        with adapter.finalizer().advance(moves) as work, stage.holding_at("db.statement:lock_refused", hold):
            return work.apply(plan(claims=[claim(fired), claim(outside, at_ms=END_MS)]), 1)

    consumer = stage.start(finalize)
    assert consumer.state is State.HELD
    assert stage.start(lambda _: world.cancel(outside)).result()
    stage.go_on(consumer)
    assert (list(consumer.result().triggered), list(consumer.result().refused)) == ([fired], [])
    assert world.live_alerts() == 0
