"""Transactions that meet: what READ COMMITTED gives each of them, in Postgres and in memory.

An actor holds in the middle of its transaction; whoever needs a row of it is blocked until it has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from api.ports import IdempotencyKeyTakenError
from contracts.frames_pb2 import Routing
from contracts.keys import shard_of
from contracts.vocabulary import Status
from finalizer.domain.batch import BatchPlan, ShardProgress
from finalizer.domain.lifecycle import Event
from finalizer.ports import BatchOutcome, Moves, PositionsMovedError
from finalizer.rule_relay import rule_of
from tests.simulation.database.stages import Hold, State
from tests.simulation.database.world import (
    END_MS,
    FINALIZED_MS,
    LIVE,
    SHARD,
    TOPIC,
    World,
    activated,
    claim,
    plan,
)

Work = Callable[[Hold], Any]


class GivenUpError(Exception):
    """An actor rolls back."""


@pytest.fixture(params=["commits", "rolls back"])
def ending(request: pytest.FixtureRequest) -> Callable[[], None]:
    """How the first of two transactions ends."""

    def give_up() -> None:
        raise GivenUpError

    return give_up if request.param == "rolls back" else lambda: None


def commits(ending: Callable[[], None]) -> bool:
    try:
        ending()
    except GivenUpError:
        return False
    return True


def finalizing(world: World, *plans: BatchPlan, ending: Callable[[], None] = lambda: None) -> Work:
    """A consumer that holds after each plan."""
    moves = world.moves()

    def work(hold: Hold) -> list[BatchOutcome]:
        with world.adapter.finalizer().advance(moves) as open_batch:
            outcomes = []
            for given in plans:
                outcomes.append(open_batch.apply(given, FINALIZED_MS))
                hold()
            ending()
        return outcomes

    return work


def requesting(world: World, *requests: Callable[[Any], Any], ending: Callable[[], None] = lambda: None) -> Work:
    """A request to the API that holds after each of its parts."""

    def work(hold: Hold) -> list[Any]:
        def run(transaction: Any) -> list[Any]:
            found = []
            for request in requests:
                found.append(request(transaction))
                hold()
            ending()
            return found

        return world.adapter.api.transact(run)

    return work


def cancelling(world: World, alert_id: int) -> Callable[[Any], bool]:
    return lambda t: t.alerts.cancel(world.owner_id, alert_id, LIVE)


def creating(world: World, **fields: Any) -> Callable[[Any], Any]:
    return lambda t: t.alerts.insert(world.new_alert(t, **fields))


def at_once(work: Callable[[], Any]) -> Work:
    return lambda _: work()


def test_a_cancel_waits_for_the_trigger_and_sees_what_became_of_it(world: World, ending: Callable[[], None]) -> None:
    (alert_id,) = world.create_active()
    stage = world.adapter.stage
    consumer = stage.start(finalizing(world, plan(claims=[claim(alert_id)]), ending=ending))
    owner = stage.start(at_once(lambda: world.cancel(alert_id)))
    assert (consumer.state, owner.state) == (State.HELD, State.BLOCKED)
    assert world.status(alert_id) == "ACTIVE"
    stage.go_on(consumer)
    assert owner.result() is not commits(ending)
    assert world.status(alert_id) == ("TRIGGERED" if commits(ending) else "CANCELLED")
    assert len(world.adapter.rows("triggers")) == int(commits(ending))
    assert world.live_alerts() == 0
    assert [action for _, _, action in world.commands()] == ["create", "remove"]


def test_a_trigger_waits_for_the_cancel_and_sees_what_became_of_it(world: World, ending: Callable[[], None]) -> None:
    alert_id, other = world.create_active(2)
    stage = world.adapter.stage
    owner = stage.start(requesting(world, cancelling(world, alert_id), ending=ending))
    both = plan(claims=[claim(alert_id), claim(other)])
    consumer = stage.start(finalizing(world, both))
    assert (owner.state, consumer.state) == (State.HELD, State.BLOCKED)
    stage.go_on(owner)
    assert consumer.state is State.HELD
    stage.go_on(consumer)
    (outcome,) = consumer.result()
    assert sorted(outcome.triggered) == ([other] if commits(ending) else [alert_id, other])
    assert list(outcome.refused) == []
    assert world.status(alert_id) == ("CANCELLED" if commits(ending) else "TRIGGERED")
    assert world.live_alerts() == 0


def test_a_refusal_waits_for_the_cancel_and_sees_what_became_of_it(world: World, ending: Callable[[], None]) -> None:
    fired, outside = world.create_active(2)
    stage = world.adapter.stage
    owner = stage.start(requesting(world, cancelling(world, outside), ending=ending))
    consumer = stage.start(finalizing(world, plan(claims=[claim(fired), claim(outside, at_ms=END_MS)])))
    assert consumer.state is State.BLOCKED
    stage.go_on(owner)
    stage.go_on(consumer)
    (outcome,) = consumer.result()
    assert (list(outcome.triggered), list(outcome.refused)) == ([fired], [] if commits(ending) else [outside])
    assert world.live_alerts() == int(not commits(ending))


def test_another_owners_cancel_within_a_batch_is_seen_by_its_next_statement(world: World) -> None:
    bob = world.add_owner("bob")
    (first,) = world.create_active()
    (second,) = world.create_active(owner_id=bob)
    stage = world.adapter.stage
    consumer = stage.start(finalizing(world, plan(claims=[claim(first)]), plan(claims=[claim(second)])))
    assert stage.start(at_once(lambda: world.cancel(second, bob))).result()
    stage.go_on(consumer)
    stage.go_on(consumer)
    assert [list(outcome.triggered) for outcome in consumer.result()] == [[first], []]


def test_a_statement_that_waited_sees_the_rest_as_it_was_when_it_began(world: World) -> None:
    held, cancelled, paused = world.create_active(3)
    stage = world.adapter.stage
    holder = stage.start(lambda hold: world.adapter.hold_row("alerts", held, hold))
    consumer = stage.start(finalizing(world, plan(claims=[claim(held), claim(cancelled), claim(paused)])))
    assert consumer.state is State.BLOCKED
    world.add_channel()
    bob = world.add_owner("bob")
    assert world.cancel(cancelled)
    assert world.move(Event.PAUSE, paused)
    assert world.move(Event.RESUME, paused)
    stage.go_on(holder)
    stage.go_on(consumer)
    # the row of an alert is judged anew when it has changed; the channel came too late for this statement
    assert list(consumer.result()[0].triggered) == [held]
    assert world.row("triggers", alert_id=held)["payload"]["channel_ids"] == []
    assert [world.status(alert_id) for alert_id in (cancelled, paused)] == ["CANCELLED", "PENDING"]
    assert bob == world.owner_id + 1


def test_one_of_two_consumers_finalizes_a_batch(world: World, ending: Callable[[], None]) -> None:
    (alert_id,) = world.create_active()
    stage = world.adapter.stage
    first = stage.start(finalizing(world, plan(claims=[claim(alert_id)]), ending=ending))
    moves = Moves(TOPIC, first_moves(world))

    def second_work(_: Hold) -> BatchOutcome:
        with world.adapter.finalizer().advance(moves) as work:
            return work.apply(plan(claims=[claim(alert_id)]), FINALIZED_MS)

    second = stage.start(second_work)
    assert second.state is State.BLOCKED
    stage.go_on(first)
    if commits(ending):
        with pytest.raises(PositionsMovedError):
            second.result()
    else:
        assert list(second.result().triggered) == [alert_id]
    assert len(world.adapter.rows("triggers")) == 1


def first_moves(world: World) -> dict[int, tuple[int, int]]:
    position = world.row("consumer_positions", topic=TOPIC)["next_offset"]
    return {0: (position, position + 1)}


def test_the_sweep_leaves_what_others_hold_and_stays_behind_it(world: World, ending: Callable[[], None]) -> None:
    held, free = world.create(), world.create()
    world.set_frontier(END_MS)
    stage, store = world.adapter.stage, world.adapter.finalizer()
    owner = stage.start(requesting(world, cancelling(world, held), ending=ending))
    # it holds the owner too, for whose count the sweep waits
    sweep = stage.start(at_once(lambda: store.expire(SHARD, END_MS, 10, 1)))
    assert sweep.state is State.BLOCKED
    stage.go_on(owner)
    assert sweep.result() == 1
    assert world.status(free) == "EXPIRED"
    assert world.status(held) == ("CANCELLED" if commits(ending) else "PENDING")
    assert world.live_alerts() == int(not commits(ending))
    # what the sweep's last statement saw was the end of the owner's transaction
    assert world.row("shard_progress", shard=SHARD)["swept_ms"] == (END_MS if commits(ending) else 0)


def test_a_sweep_that_skips_all_moves_nothing(world: World) -> None:
    held = world.create()
    world.set_frontier(END_MS)
    stage, store = world.adapter.stage, world.adapter.finalizer()
    holder = stage.start(lambda hold: world.adapter.hold_row("alerts", held, hold))
    assert stage.start(at_once(lambda: store.expire(SHARD, END_MS, 10, 1))).result() == 0
    assert world.row("shard_progress", shard=SHARD)["swept_ms"] == 0
    stage.go_on(holder)
    assert store.expire(SHARD, END_MS, 10, 1) == 1


def test_the_quota_holds_between_two_creates(world: World, ending: Callable[[], None]) -> None:
    world.set_quota(1)
    stage = world.adapter.stage
    first = stage.start(requesting(world, creating(world), ending=ending))
    second = stage.start(at_once(world.try_create))
    assert second.state is State.BLOCKED
    stage.go_on(first)
    assert (second.result() is None) is commits(ending)
    assert world.live_alerts() == len(world.adapter.rows("alerts")) == 1


def test_an_idempotency_key_waits_for_whoever_inserts_it(world: World, ending: Callable[[], None]) -> None:
    bob = world.add_owner("bob")
    key = {"idempotency_key": "k", "request_hash": b""}
    stage = world.adapter.stage
    first = stage.start(requesting(world, creating(world, **key), ending=ending))
    assert stage.start(at_once(lambda: world.create(owner_id=bob, **key))).state is State.ENDED
    second = stage.start(at_once(lambda: world.create(**key)))
    assert second.state is State.BLOCKED
    stage.go_on(first)
    if commits(ending):
        with pytest.raises(IdempotencyKeyTakenError):
            second.result()
    else:
        assert world.row("idempotency_keys", owner_id=world.owner_id)["alert_id"] == second.result()
    assert world.live_alerts() == 1


def test_a_command_that_commits_late_is_numbered_later_and_never_skipped(world: World) -> None:
    bob = world.add_owner("bob")
    relay = world.adapter.rule_relay()
    late = world.adapter.stage.start(requesting(world, creating(world)))
    early = world.create(owner_id=bob)
    fences = relay.take(relay.shards_waiting(10))
    assert relay.number(fences, 10) == 1
    world.adapter.stage.go_on(late)
    assert relay.number(fences, 10) == 1
    found = [(c.number, rule_of(c.command).alert_id) for c in relay.numbered(fences, 10)]
    assert found == [(1, early), (2, late.result()[0].alert_id)]
    assert late.result()[0].alert_id < early


def reshard(world: World) -> int:
    world.adapter.reference().set_routing("AAA", 4)
    (reshard_id,) = world.adapter.reshards().under_way()
    return reshard_id


def test_a_routing_change_waits_for_creates_that_have_read_the_old_one(world: World) -> None:
    stage, reshard_id = world.adapter.stage, reshard(world)
    first = stage.start(requesting(world, creating(world)))
    routing = stage.start(lambda hold: world.adapter.route_slowly(reshard_id, hold))
    assert routing.state is State.BLOCKED
    stage.go_on(first)
    assert routing.state is State.HELD
    assert world.alert(first.result()[0].alert_id)["shard"] == SHARD
    stage.go_on(routing)


def test_a_create_that_waited_for_a_routing_change_follows_it(world: World) -> None:
    stage, reshard_id = world.adapter.stage, reshard(world)
    routing = stage.start(lambda hold: world.adapter.route_slowly(reshard_id, hold))
    create = stage.start(at_once(lambda: world.adapter.api.transact(lambda t: t.alerts.find_instrument(["AAA"]))))
    split = stage.start(at_once(lambda: world.adapter.reference().add_split("AAA", 5, 2, 1)))
    assert (create.state, split.state) == (State.BLOCKED, State.BLOCKED)
    stage.go_on(routing)
    assert create.result().shards == 4
    assert split.result() is not None


@pytest.mark.parametrize("event", [Event.RESUME, None])
def test_what_is_installed_again_waits_for_a_routing_change_and_follows_it(world: World, event: Event | None) -> None:
    """A resume, or a claim that is refused."""
    (alert_id,) = world.create_active()
    if event is Event.RESUME:
        world.move(Event.PAUSE, alert_id)
    stage, reshard_id = world.adapter.stage, reshard(world)
    routing = stage.start(lambda hold: world.adapter.route_slowly(reshard_id, hold))
    again = stage.start(
        at_once(lambda: world.move(Event.RESUME, alert_id) if event else world.apply(claims=[claim(alert_id, at_ms=5)]))
    )
    assert again.state is State.BLOCKED
    stage.go_on(routing)
    assert again.result()
    row = world.alert(alert_id)
    assert (row["status"], row["version"], row["shard"]) == ("PENDING", 2, shard_of("stocks", "AAA", 2, alert_id, 4))


def test_a_control_that_commits_late_gets_a_later_number(world: World) -> None:
    gateway, stage = world.adapter.feeds(), world.adapter.stage
    gateway.take_lease("stocks", "{}")
    reshard_id = reshard(world)
    gateway.mark_published("stocks", 1, [c.control_id for c in gateway.number_controls("stocks", 1, 10)])

    def send(hold: Hold) -> None:
        with world.adapter.reshards().hold(reshard_id) as work:
            assert work is not None
            work.send(Routing.END)
            hold()

    routing = stage.start(send)
    world.adapter.reference().add_instrument("CCC", "stocks", 2)
    (early,) = gateway.number_controls("stocks", 1, 10)
    stage.go_on(routing)
    first, second = gateway.number_controls("stocks", 1, 10)
    assert first == early
    assert second.control_number == first.control_number + 1
    assert second.control_id < first.control_id


def test_a_gateway_that_takes_a_lease_waits_for_what_runs_under_the_old_one(world: World) -> None:
    gateway, stage = world.adapter.feeds(), world.adapter.stage
    gateway.take_lease("stocks", "{}")
    holder = stage.start(lambda hold: world.adapter.hold_row("feeds", "stocks", hold))
    taking = stage.start(at_once(lambda: gateway.take_lease("stocks", "{}")))
    saving = stage.start(at_once(lambda: gateway.save_checkpoints({"stocks": 1}, {"stocks": '{"a": 1}'})))
    assert (taking.state, saving.state) == (State.BLOCKED, State.BLOCKED)
    assert gateway.list_feeds()[1].lease == 1
    stage.go_on(holder)
    assert taking.result().row.lease == 2
    assert saving.result() is None


@pytest.mark.parametrize("table", ["shard_relays", "owners"])
def test_a_holder_blocks_only_who_needs_its_row(table: str, world: World) -> None:
    alert_id = world.create()
    relay, stage = world.adapter.rule_relay(), world.adapter.stage
    fences = relay.take([SHARD])
    key = SHARD if table == "shard_relays" else world.owner_id
    holder = stage.start(lambda hold: world.adapter.hold_row(table, key, hold))
    numbering = stage.start(at_once(lambda: relay.number(fences, 10)))
    taking = stage.start(at_once(lambda: relay.take([SHARD])))
    cancel = stage.start(at_once(lambda: world.cancel(alert_id)))
    blocked = [actor.state is State.BLOCKED for actor in (numbering, taking, cancel)]
    assert blocked == ([True, True, False] if table == "shard_relays" else [False, False, True])
    stage.go_on(holder)
    assert cancel.result()
    assert taking.result() == {SHARD: 2}


def test_channels_are_counted_one_request_after_the_other(world: World, ending: Callable[[], None]) -> None:
    def adding(address: str) -> Callable[[Any], Any]:
        return lambda t: t.channels.insert(world.owner_id, "email", address, None, 1)

    stage = world.adapter.stage
    first = stage.start(requesting(world, adding("a@example.org"), ending=ending))
    second = stage.start(at_once(lambda: world.adapter.api.transact(adding("b@example.org"))))
    assert second.state is State.BLOCKED
    stage.go_on(first)
    assert (second.result() is None) is commits(ending)
    assert len(world.adapter.rows("channels")) == 1


def test_two_who_wait_for_each_other_have_one_victim_who_is_tried_again(world: World) -> None:
    bob = world.add_owner("bob")
    mine, foreign = world.create(), world.create(owner_id=bob)
    stage = world.adapter.stage
    tries = []

    def work(first: tuple[int, int], second: tuple[int, int]) -> Work:
        def run(hold: Hold) -> list[bool]:
            def request(t: Any) -> list[bool]:
                tries.append(first)
                found = [t.alerts.cancel(*first, LIVE)]
                if tries.count(first) == 1:
                    hold()
                return [*found, t.alerts.cancel(*second, LIVE)]

            return world.adapter.api.transact(request)

        return run

    places = (world.owner_id, mine), (bob, foreign)
    one = stage.start(work(*places))
    two = stage.start(work(*places[::-1]))
    assert (one.state, two.state) == (State.HELD, State.HELD)
    stage.finish()
    assert len(tries) == 3
    assert sorted([one.result(), two.result()]) == [[False, False], [True, True]]
    assert [world.status(alert_id) for alert_id in (mine, foreign)] == ["CANCELLED", "CANCELLED"]
    assert [row["live_alerts"] for row in world.adapter.rows("owners")] == [0, 0]


def test_progress_waits_for_whoever_writes_it(world: World, ending: Callable[[], None]) -> None:
    """Two topics' batches are apart; only the shard's row joins them."""
    stage = world.adapter.stage
    progress = [ShardProgress(SHARD, frontier_ms=5)]
    first = stage.start(finalizing(world, plan(progress=progress), ending=ending))
    world.adapter.finalizer().positions("other.v1", 1)

    def second_work(_: Hold) -> dict[str, ShardProgress]:
        with world.adapter.finalizer().advance(Moves("other.v1", {0: (0, 1)})) as work:
            work.apply(plan(progress=[ShardProgress(SHARD, frontier_ms=6)]), FINALIZED_MS)
            return work.progress([SHARD])

    second = stage.start(second_work)
    assert second.state is State.BLOCKED
    stage.go_on(first)
    assert second.result()[SHARD].frontier_ms == 6


def test_nobody_sees_what_is_not_committed(world: World) -> None:
    stage = world.adapter.stage
    first = stage.start(requesting(world, creating(world)))
    assert world.adapter.rows("alerts") == world.adapter.rows("rule_commands") == []
    assert world.adapter.rule_relay().shards_waiting(10) == []
    stage.go_on(first)
    alert_id = first.result()[0].alert_id
    assert world.adapter.api.transact(lambda t: t.alerts.statuses([alert_id])) == {alert_id: Status.PENDING}
    assert world.apply(activations=[activated(alert_id)]).activated == 1
