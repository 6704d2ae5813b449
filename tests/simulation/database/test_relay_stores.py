"""RuleRelayStore and TriggerRelayStore, over both adapters."""

from __future__ import annotations

import pytest

from contracts.frames_pb2 import Direction, Kind
from finalizer.ports import FencedError
from finalizer.rule_relay import rule_of
from tests.simulation.database.adapters import Adapter, without_stamp
from tests.simulation.database.world import END_MS, OTHER_SHARD, SHARD, START_MS, World


def test_one_leads_until_it_resigns(adapter: Adapter) -> None:
    first, second = adapter.rule_relay(), adapter.rule_relay()
    assert (first.lead(), second.lead(), first.lead()) == (True, False, True)
    second.resign()
    assert not second.lead()
    first.resign()
    first.resign()
    assert second.lead()
    assert not first.lead()
    second.resign()


def test_the_lead_ends_with_its_session_though_its_holder_does_not_notice(adapter: Adapter) -> None:
    first, second = adapter.rule_relay(), adapter.rule_relay()
    assert first.lead()
    adapter.break_leader(first)
    assert second.lead()
    assert first.lead()
    first.resign()
    assert not first.lead()
    second.resign()
    assert first.lead()
    first.resign()


def test_commands_get_dense_numbers_per_shard_in_order(world: World) -> None:
    relay = world.adapter.rule_relay()
    assert relay.shards_waiting(10) == []
    coin = world.create(symbol="BTC")
    first, second = world.create(), world.create()
    world.cancel(first)
    shards = relay.shards_waiting(10)
    assert [shards[0]] == relay.shards_waiting(1)
    assert shards == sorted({SHARD, world.alert(coin)["shard"]})
    fences = relay.take(shards)
    assert set(fences.values()) == {1}
    assert relay.number(fences, 3) == 3
    assert relay.number(fences, 3) == 1
    assert relay.number(fences, 3) == 0
    numbered = relay.numbered({SHARD: 1}, 10)
    assert [(c.number, rule_of(c.command).alert_id, c.command.WhichOneof("kind")) for c in numbered] == [
        (1, first, "create"), (2, second, "create"), (3, first, "remove"),
    ]  # fmt: skip
    assert [c.shard for c in relay.numbered(fences, 10)] == sorted(c.shard for c in relay.numbered(fences, 10))
    assert {c.epoch for c in numbered} == {1}
    assert len(relay.numbered(fences, 2)) == 2
    relay.mark_published(fences, [c.command_id for c in numbered[:2]])
    assert [c.number for c in relay.numbered({SHARD: 1}, 10)] == [3]
    assert relay.shards_waiting(10) == shards
    relay.mark_published(fences, [c.command_id for c in relay.numbered(fences, 10)])
    assert relay.shards_waiting(10) == []
    world.create()
    assert relay.number(fences, 10) == 1
    assert [c.number for c in relay.numbered(fences, 10)] == [4]


def test_a_command_carries_its_rule(world: World) -> None:
    change = world.create()
    price = world.create_price(symbol="BTC", threshold=7, direction="BELOW")
    relay = world.adapter.rule_relay()
    fences = relay.take(relay.shards_waiting(10))
    relay.number(fences, 10)
    rules = {rule_of(c.command).alert_id: rule_of(c.command) for c in relay.numbered(fences, 10)}
    rule = rules[change]
    assert (rule.symbol, rule.kind, rule.window, rule.direction) == ("AAA", Kind.CHANGE, 1, Direction.UP)
    assert (rule.threshold, rule.version, rule.created_at_ms, rule.expires_at_ms) == (500, 1, START_MS, END_MS)
    rule = rules[price]
    assert (rule.symbol, rule.kind, rule.window, rule.direction) == ("BTC", Kind.PRICE, 0, Direction.BELOW)
    assert rule.threshold == 7


def test_whoever_took_a_shard_last_alone_writes(world: World) -> None:
    world.create()
    old, new = world.adapter.rule_relay(), world.adapter.rule_relay()
    stale = old.take([SHARD, OTHER_SHARD])
    fresh = new.take([SHARD])
    assert fresh[SHARD] == stale[SHARD] + 1
    for attempt in (lambda: old.number(stale, 10), lambda: old.mark_published(stale, [1])):
        with pytest.raises(FencedError) as caught:
            attempt()
        assert caught.value.shards == [SHARD]
    with pytest.raises(FencedError):
        old.number({"never taken": 1}, 10)
    assert new.number(fresh, 10) == 1
    assert old.number({OTHER_SHARD: stale[OTHER_SHARD]}, 10) == 0
    (command,) = old.numbered(stale, 10)
    with pytest.raises(FencedError):
        old.mark_published(stale, [command.command_id])
    assert new.numbered(fresh, 10) == [command]


def test_triggers_wait_in_order_until_they_are_marked(world: World) -> None:
    ids = world.create_active(3)
    store = world.adapter.trigger_relay()
    with store.unpublished(10) as work:
        assert list(work.triggers) == []
    for alert_id in ids:
        world.adapter.clock.now_ms += 1
        world.trigger(alert_id)

    def fail() -> None:
        with store.unpublished(10) as work:
            work.mark_published()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.unpublished(2) as work:
        assert [without_stamp(t.trigger_id) for t in work.triggers] == [f"trg_{i}" for i in ids[:2]]
        assert {t.owner_id for t in work.triggers} == {world.owner_id}
    with store.unpublished(2) as work:
        work.mark_published()
    with store.unpublished(2) as work:
        assert [without_stamp(t.trigger_id) for t in work.triggers] == [f"trg_{ids[2]}"]


def test_rows_that_one_relay_holds_are_left_out_by_another(world: World) -> None:
    ids = world.create_active(3)
    for alert_id in ids:
        world.adapter.clock.now_ms += 1
        world.trigger(alert_id)
    store = world.adapter.trigger_relay()
    with store.unpublished(2) as held, store.unpublished(2) as rest, store.unpublished(2) as none:
        assert len(held.triggers) == 2
        assert [without_stamp(t.trigger_id) for t in rest.triggers] == [f"trg_{ids[2]}"]
        assert list(none.triggers) == []
        rest.mark_published()
    with store.unpublished(9) as work:
        assert [t.trigger_id for t in work.triggers] == [t.trigger_id for t in held.triggers]
