"""AlertStore, ChannelStore and what `transact` promises, over both adapters."""

from __future__ import annotations

from typing import Any

import pytest

from api.ports import EXPIRING, AlertFilter, FeedFrontier, IdempotencyKeyTakenError
from contracts.vocabulary import Status
from finalizer.domain.batch import ShardProgress
from finalizer.domain.lifecycle import Event
from tests.simulation.database.world import (
    END_MS,
    FINALIZED_MS,
    OTHER_SHARD,
    SHARD,
    START_MS,
    World,
    activated,
)

ALL = AlertFilter(None, None)


def read(world: World, what: str, *arguments: Any) -> Any:
    return world.adapter.api.transact(lambda t: getattr(t.alerts, what)(*arguments))


def page(world: World, shown: AlertFilter = ALL, before: int = 1 << 60, limit: int = 100, clock_ms: int = 0) -> Any:
    found = read(world, "page", world.owner_id, shown, before, limit, {"stocks": clock_ms})
    return [(alert.alert_id, alert.shown_status) for alert in found]


def test_a_create_counts_commands_and_remembers(world: World) -> None:
    reference = world.adapter.reference()
    for at_ms in (START_MS - 5, START_MS, START_MS + 1):
        reference.add_split("AAA", at_ms, 3, 1)
    alert = world.try_create(idempotency_key="k", request_hash=b"hash", channel_ids=[3, 4])
    assert alert is not None
    row = world.alert(alert.alert_id)
    assert (alert.status, alert.shown_status, alert.version) == (Status.PENDING, "PENDING", 1)
    assert (alert.series_version, alert.window, alert.threshold, alert.note) == (2, "1h", 500, "é 📈")
    assert (alert.trigger, alert.ended_at, alert.active_from_event_time_ms) == (None, None, None)
    assert (row["shard"], row["channel_ids"], row["inserted_at"]) == (SHARD, [3, 4], "set")
    assert world.commands() == [(alert.alert_id, 1, "create")]
    assert world.live_alerts() == 1
    assert read(world, "find_idempotent", world.owner_id, "k") == (b"hash", alert.alert_id)
    assert read(world, "find_idempotent", world.owner_id + 1, "k") is None
    assert read(world, "find", world.owner_id, alert.alert_id, {}) == alert


def test_a_key_makes_one_alert_an_owner(world: World) -> None:
    first = world.create(idempotency_key="k", request_hash=b"1")
    with pytest.raises(IdempotencyKeyTakenError):
        world.create(idempotency_key="k", request_hash=b"2")
    assert world.live_alerts() == 1
    assert world.commands() == [(first, 1, "create")]
    bob = world.add_owner("bob")
    other = world.create(idempotency_key="k", request_hash=b"3", owner_id=bob)
    assert read(world, "find_idempotent", bob, "k") == (b"3", other)
    free = world.create()
    assert free > other
    assert [alert_id for alert_id, _, _ in world.commands()] == [first, other, free]


def test_a_quota_is_a_bound_and_every_end_makes_room(world: World) -> None:
    world.set_quota(2)
    first, second = world.create(idempotency_key="k", request_hash=b""), world.create()
    assert world.try_create(idempotency_key="z", request_hash=b"") is None
    assert read(world, "find_idempotent", world.owner_id, "z") is None
    world.cancel(first)
    third = world.create()
    assert world.try_create() is None
    world.apply(activations=[activated(second)])
    world.move(Event.PAUSE, second)
    assert world.try_create() is None
    world.set_quota(1)
    world.cancel(second)
    assert world.try_create() is None
    world.cancel(third)
    assert world.try_create(owner_id=world.owner_id + 9) is None
    world.create()
    assert world.live_alerts() == 1


def test_an_instrument_comes_with_its_routing_and_its_feeds_clock(world: World) -> None:
    route = read(world, "find_instrument", ["none", "BTC", "AAA"])
    assert (route.symbol, route.feed, route.decimals, route.shards, route.buckets) == ("BTC", "coins", 8, 1, 1)
    assert (route.clock_mode, route.frontier_ms) == ("live", None)
    world.apply(
        progress=[
            ShardProgress(SHARD, frontier_ms=70), ShardProgress(OTHER_SHARD, frontier_ms=60),
            ShardProgress("stocks/AAA/4.1~0", frontier_ms=5), ShardProgress("stocks/3~0"),
            ShardProgress("stocksy/0~0", frontier_ms=6),
        ]
    )  # fmt: skip
    again = read(world, "find_instrument", ["AAA"])
    assert (again.frontier_ms, again.next_alert_id) == (60, route.next_alert_id + 1)
    assert read(world, "feed_frontiers") == [FeedFrontier("coins", "live", None), FeedFrontier("stocks", "replay", 60)]
    assert read(world, "find_instrument", ["none"]) is None
    assert read(world, "resolve_symbol", ["none", "AAA"]) == "AAA"
    assert read(world, "resolve_symbol", ["none"]) is None
    assert read(world, "find_instrument", ["AAA"]).next_alert_id == again.next_alert_id + 1


def test_creates_go_to_the_old_shards_until_the_new_ones_are_open(world: World) -> None:
    world.adapter.reference().set_routing("AAA", 4)
    assert world.alert(world.create())["shard"] == SHARD
    (reshard_id,) = world.adapter.reshards().under_way()
    with world.adapter.reshards().hold(reshard_id) as work:
        assert work is not None
        work.route_creates()
    shards = {world.alert(world.create())["shard"] for _ in range(12)}
    assert len(shards) == 4
    assert SHARD not in shards


def test_alerts_are_moved_by_their_owner_from_where_the_lifecycle_says(world: World) -> None:
    bob = world.add_owner("bob")
    alert_id = world.create()
    assert not world.cancel(alert_id, bob)
    assert not world.cancel(alert_id + 9)
    assert not world.move(Event.PAUSE, alert_id)
    world.apply(activations=[activated(alert_id)])
    assert not world.move(Event.RESUME, alert_id)
    assert not world.move(Event.PAUSE, alert_id, bob)
    assert world.move(Event.PAUSE, alert_id)
    row = world.alert(alert_id)
    assert (row["status"], row["version"]) == ("PAUSED", 1)
    assert {row[name] for name in ("active_from_event_time_ms", "active_epoch", "active_position")} == {None}
    assert not world.move(Event.PAUSE, alert_id)
    assert world.move(Event.RESUME, alert_id)
    assert (world.alert(alert_id)["status"], world.alert(alert_id)["version"]) == ("PENDING", 2)
    assert world.live_alerts() == 1
    assert world.cancel(alert_id)
    assert not world.cancel(alert_id)
    assert not world.move(Event.RESUME, alert_id)
    assert world.alert(alert_id)["ended_at"] == "set"
    assert world.live_alerts() == 0
    assert world.commands() == [
        (alert_id, v, a) for v, a in [(1, "create"), (1, "remove"), (2, "create"), (2, "remove")]
    ]


def test_ended_alerts_stay_what_they_are(world: World) -> None:
    (fired,) = world.create_active()
    world.trigger(fired)
    expired = world.create()
    world.set_frontier(END_MS)
    assert world.adapter.finalizer().expire(SHARD, END_MS, 10, FINALIZED_MS) == 1
    for alert_id in (fired, expired):
        assert [world.move(event, alert_id) for event in (Event.CANCEL, Event.PAUSE, Event.RESUME)] == [False] * 3
    assert read(world, "statuses", [fired, expired, 99]) == {fired: Status.TRIGGERED, expired: Status.EXPIRED}
    found = read(world, "find", world.owner_id, fired, {"stocks": END_MS})
    assert (found.status, found.shown_status) == (Status.TRIGGERED, "TRIGGERED")
    assert found.ended_at.timestamp() * 1000 == FINALIZED_MS
    assert found.trigger["price"] == "105"


def test_pages_are_the_owners_newest_first_below_a_cursor(world: World) -> None:
    bob = world.add_owner("bob")
    first, coin = world.create(), world.create(symbol="BTC")
    foreign = world.create(owner_id=bob)
    (active,) = world.create_active()
    cancelled = world.create()
    world.cancel(cancelled)
    assert [alert_id for alert_id, _ in page(world)] == [cancelled, active, coin, first]
    assert page(world, before=active, limit=1) == [(coin, "PENDING")]
    assert page(world, AlertFilter(None, "AAA")) == [(cancelled, "CANCELLED"), (active, "ACTIVE"), (first, "PENDING")]
    assert page(world, AlertFilter("PENDING", None)) == [(coin, "PENDING"), (first, "PENDING")]
    assert page(world, AlertFilter("CANCELLED", "BTC")) == []
    assert read(world, "find", world.owner_id, foreign, {}) is None
    assert read(world, "find", bob, foreign, {}).alert_id == foreign


def test_past_its_end_a_live_alert_is_shown_as_expiring_by_its_feeds_clock(world: World) -> None:
    alert_id, coin, longer = world.create(), world.create(symbol="BTC"), world.create(expires_at_ms=END_MS + 1)
    assert page(world, clock_ms=END_MS - 1)[2] == (alert_id, "PENDING")
    assert page(world, clock_ms=END_MS) == [(longer, "PENDING"), (coin, "PENDING"), (alert_id, EXPIRING)]
    assert page(world, AlertFilter(EXPIRING, None), clock_ms=END_MS) == [(alert_id, EXPIRING)]
    assert page(world, AlertFilter("PENDING", None), clock_ms=END_MS) == [(longer, "PENDING"), (coin, "PENDING")]
    assert read(world, "find", world.owner_id, alert_id, {"stocks": END_MS}).shown_status == EXPIRING
    world.cancel(alert_id)
    assert page(world, AlertFilter(EXPIRING, None), clock_ms=END_MS) == []


def test_an_error_rolls_a_request_back(world: World) -> None:
    alert_id = world.create()

    def work(transaction: Any) -> None:
        assert transaction.alerts.cancel(world.owner_id, alert_id, [Status.PENDING])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        world.adapter.api.transact(work)
    assert world.status(alert_id) == "PENDING"
    assert (world.live_alerts(), len(world.commands())) == (1, 1)


def channels(world: World, what: str, *arguments: Any) -> Any:
    return world.adapter.api.transact(lambda t: getattr(t.channels, what)(*arguments))


def test_channels_are_bounded_unique_and_come_back(world: World) -> None:
    ann, bob = world.owner_id, world.add_owner("bob")
    mail = channels(world, "insert", ann, "email", "a@example.org", None, 2)
    hook = channels(world, "insert", ann, "webhook", "https://x.example/", b"one", 2)
    assert (mail["kind"], mail["address"], hook["channel_id"]) == ("email", "a@example.org", mail["channel_id"] + 1)
    assert channels(world, "insert", ann, "email", "b@example.org", None, 2) is None
    assert channels(world, "insert", ann, "email", "a@example.org", None, 9) is None
    assert channels(world, "insert", bob, "email", "a@example.org", None, 2)["address"] == "a@example.org"
    assert channels(world, "find_address", ann, "email", "a@example.org") == mail["channel_id"]
    assert channels(world, "page", ann, 9) == [mail, hook]
    assert channels(world, "page", ann, 1) == [mail]
    assert channels(world, "disable", ann, hook["channel_id"])
    assert channels(world, "disable", ann, hook["channel_id"])
    assert not channels(world, "disable", bob, mail["channel_id"])
    row = world.row("channels", channel_id=hook["channel_id"])
    assert (row["secret"], row["disabled_at"]) == (None, "set")
    assert channels(world, "find_address", ann, "webhook", "https://x.example/") is None
    assert channels(world, "missing", ann, [mail["channel_id"], hook["channel_id"], 99]) == [hook["channel_id"], 99]
    back = channels(world, "insert", ann, "webhook", "https://x.example/", b"two", 2)
    assert back["channel_id"] == hook["channel_id"]
    row = world.row("channels", channel_id=hook["channel_id"])
    assert (row["secret"], row["disabled_at"]) == (b"two", None)
    assert channels(world, "missing", ann, [mail["channel_id"], hook["channel_id"]]) == []
    assert channels(world, "missing", bob, [mail["channel_id"]]) == [mail["channel_id"]]


def test_a_name_is_one_owners(world: World) -> None:
    api = world.adapter.api
    assert api.transact(lambda t: t.owners.insert("ann", 5)) is None
    bob = api.transact(lambda t: t.owners.insert("bob", 5))
    assert (bob.max_live_alerts, bob.live_alerts, bob.owner_id) == (5, 0, world.owner_id + 2)  # ids are not given back
    assert api.transact(lambda t: t.owners.find("bob")) == bob
    assert api.transact(lambda t: t.owners.find("cid")) is None
