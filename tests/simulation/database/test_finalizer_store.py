"""FinalizerStore and SweeperStore, over both adapters."""

from __future__ import annotations

import pytest

from contracts.frames_pb2 import Direction
from finalizer.domain.batch import ShardProgress
from finalizer.domain.lifecycle import Event
from finalizer.ports import Moves, PartitionCountError, PositionsMovedError
from tests.simulation.database.adapters import Adapter, without_stamp
from tests.simulation.database.world import (
    END_MS,
    FINALIZED_MS,
    OTHER_SHARD,
    SHARD,
    START_MS,
    TOPIC,
    World,
    activated,
    claim,
    plan,
)


def test_positions_begin_at_0_and_keep_their_number_of_partitions(adapter: Adapter) -> None:
    store = adapter.finalizer()
    assert store.positions(TOPIC, 3) == {0: 0, 1: 0, 2: 0}
    with store.advance(Moves(TOPIC, {0: (0, 5), 2: (0, 7)})):
        pass
    assert store.positions(TOPIC, 3) == {0: 5, 1: 0, 2: 7}
    assert store.positions("other.v1", 1) == {0: 0}
    for found in (2, 4):
        with pytest.raises(PartitionCountError):
            store.positions(TOPIC, found)


@pytest.mark.parametrize("offsets", [{0: (4, 6)}, {0: (5, 6), 1: (1, 2)}, {7: (0, 1)}])
def test_positions_that_are_elsewhere_refuse_the_whole_batch(offsets: dict[int, tuple[int, int]], world: World) -> None:
    store = world.adapter.finalizer()
    store.positions(TOPIC, 2)
    with store.advance(Moves(TOPIC, {0: (0, 5)})):
        pass
    before = world.adapter.rows("consumer_positions")
    with pytest.raises(PositionsMovedError), store.advance(Moves(TOPIC, offsets)):
        raise AssertionError("the batch was let in")
    assert world.adapter.rows("consumer_positions") == before


def test_an_error_in_the_batch_rolls_all_of_it_back(world: World) -> None:
    (alert_id,) = world.create_active()
    world.add_channel()
    before = {table: world.adapter.rows(table) for table in ("alerts", "triggers", "rule_commands", "owners")}
    moves = world.moves()

    def fail() -> None:
        with world.adapter.finalizer().advance(moves) as work:
            work.apply(plan(claims=[claim(alert_id)], progress=[ShardProgress(SHARD, 1, 1)]), FINALIZED_MS)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert {table: world.adapter.rows(table) for table in before} == before
    assert world.moves() == moves
    assert world.adapter.rows("shard_progress") == []


def test_an_activation_needs_pending_its_version_and_its_shard(world: World) -> None:
    first, second, third = (world.create() for _ in range(3))
    world.cancel(third)
    wrong = [
        activated(first, version=2), activated(first, shard=OTHER_SHARD), activated(third), activated(third + 100),
    ]  # fmt: skip
    assert world.apply(activations=wrong).activated == 0
    right = activated(second, active_from_ms=START_MS + 9)
    assert world.apply(activations=[right, activated(first)]).activated == 2
    assert world.apply(activations=[right]).activated == 0
    row = world.alert(second)
    assert (row["status"], row["active_from_event_time_ms"]) == ("ACTIVE", START_MS + 9)
    assert (row["active_epoch"], row["active_position"]) == (1, second)
    assert [world.status(alert_id) for alert_id in (first, third)] == ["ACTIVE", "CANCELLED"]


def test_a_change_that_fired(world: World) -> None:
    later, early = world.add_channel("webhook", "https://x.example/"), world.add_channel()
    gone = world.add_channel("email", "old@example.org")
    world.adapter.api.transact(lambda t: t.channels.disable(world.owner_id, gone))
    (alert_id,) = world.create_active()
    outcome = world.apply(claims=[claim(alert_id)])
    assert (list(outcome.triggered), list(outcome.refused)) == ([alert_id], [])
    evidence = {
        "event_time_ms": START_MS + 5, "sequence": 7, "session": 3, "price": "105", "window": "1h", "fired": "UP",
        "position": 40 + alert_id, "epoch": 1, "version": 1, "active_from_event_time_ms": START_MS,
        "finalized_at_ms": FINALIZED_MS, "reference_time_ms": START_MS - 3_600_000, "reference_price": "100.1",
        "previous_bps": 489, "current_bps": 500,
    }  # fmt: skip
    row = world.alert(alert_id)
    assert (row["status"], row["ended_at"], row["trigger"]) == ("TRIGGERED", "set", evidence)
    assert world.row("triggers", alert_id=alert_id)["payload"] == {
        "trigger_id": f"trg_{alert_id}", "alert_id": alert_id, "owner_id": world.owner_id, "symbol": "AAA",
        "kind": "change", "window": "1h", "direction": "UP", "threshold_bps": 500, "target": None, "note": "é 📈",
        "created_at_ms": START_MS, "expires_at_ms": END_MS, "channel_ids": sorted([later, early]),
        "evidence": evidence,
    }  # fmt: skip
    assert world.commands() == [(alert_id, 1, "create"), (alert_id, 1, "remove")]
    assert world.live_alerts() == 0
    assert world.apply(claims=[claim(alert_id)]) == world.apply()


def test_a_price_that_fired(world: World) -> None:
    channel_id = world.add_channel()
    world.add_channel("webhook", "https://x.example/")
    alert_id = world.create_price(threshold=10_440, channel_ids=[channel_id])
    world.apply(activations=[activated(alert_id)])
    given = claim(
        alert_id, sequence=0, price_scaled=10_450, fired=Direction.ABOVE, previous_price_scaled=1, reference_time_ms=0,
        previous_event_time_ms=START_MS - 1,
    )  # fmt: skip
    assert list(world.apply(claims=[given]).triggered) == [alert_id]
    payload = world.row("triggers", alert_id=alert_id)["payload"]
    assert (payload["threshold_bps"], payload["target"], payload["channel_ids"]) == (None, "104.4", [channel_id])
    evidence = payload["evidence"]
    assert (evidence["price"], evidence["sequence"], evidence["window"]) == ("104.5", None, None)
    assert (evidence["previous_price"], evidence["previous_event_time_ms"]) == ("0.01", START_MS - 1)
    assert "reference_price" not in evidence


def test_trigger_ids_name_the_alert_and_its_creation(world: World) -> None:
    (alert_id,) = world.create_active()
    world.trigger(alert_id)
    with world.adapter.trigger_relay().unpublished(10) as work:
        (trigger,) = work.triggers
    assert trigger.trigger_id != f"trg_{alert_id}"
    assert without_stamp(trigger.trigger_id) == f"trg_{alert_id}"
    assert trigger.payload["trigger_id"] == trigger.trigger_id


def test_a_claim_needs_active_its_version_its_shard_and_the_lifetime(world: World) -> None:
    ids = world.create_active(6)
    before, at_start, last, at_end, version, shard = ids
    pending = world.create()
    outcome = world.apply(
        claims=[
            claim(before, at_ms=START_MS - 1), claim(at_start, at_ms=START_MS), claim(last, at_ms=END_MS - 1),
            claim(at_end, at_ms=END_MS), claim(version, version=2), claim(shard, shard=OTHER_SHARD), claim(pending),
        ]
    )  # fmt: skip
    assert sorted(outcome.triggered) == [at_start, last]
    assert sorted(outcome.refused) == [before, at_end]
    assert [world.status(alert_id) for alert_id in (version, shard, pending)] == ["ACTIVE", "ACTIVE", "PENDING"]
    assert world.live_alerts() == 5


def test_a_refused_claim_installs_the_rule_again_under_a_new_version(world: World) -> None:
    (alert_id,) = world.create_active()
    assert list(world.apply(claims=[claim(alert_id, at_ms=END_MS)]).refused) == [alert_id]
    row = world.alert(alert_id)
    assert (row["status"], row["version"]) == ("PENDING", 2)
    assert {row[name] for name in ("active_from_event_time_ms", "active_epoch", "active_position")} == {None}
    assert world.commands() == [(alert_id, 1, "create"), (alert_id, 2, "create")]
    assert world.apply(activations=[activated(alert_id)]).activated == 0
    assert world.apply(activations=[activated(alert_id, version=2)]).activated == 1
    assert list(world.apply(claims=[claim(alert_id, version=2)]).triggered) == [alert_id]
    assert world.live_alerts() == 0


def test_a_batch_activates_before_it_triggers(world: World) -> None:
    alert_id = world.create()
    outcome = world.apply(activations=[activated(alert_id)], claims=[claim(alert_id)])
    assert (outcome.activated, list(outcome.triggered)) == (1, [alert_id])


def test_progress_is_stored_whole_and_shards_never_seen_are_left_out(world: World) -> None:
    stored = ShardProgress(SHARD, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, "a gap")
    world.apply(progress=[stored, ShardProgress(OTHER_SHARD, frontier_ms=1)])
    with world.adapter.finalizer().advance(world.moves()) as work:
        assert work.progress([SHARD, "none", SHARD]) == {SHARD: stored}
        work.apply(plan(progress=[ShardProgress(SHARD, 3)]), 1)
        assert work.progress([SHARD]) == {SHARD: ShardProgress(SHARD, 3)}


def test_gaps_that_stand_are_told_the_oldest_first(world: World) -> None:
    store = world.adapter.finalizer()
    assert store.gaps(10) == (0, [])
    world.apply(progress=[ShardProgress(SHARD, gap="a gap"), ShardProgress("whole/0~1", 1)])
    world.apply(progress=[ShardProgress(OTHER_SHARD, gap="another")])
    shards, gaps = store.gaps(10)
    assert (shards, {(gap.shard, gap.what) for gap in gaps}) == (2, {(SHARD, "a gap"), (OTHER_SHARD, "another")})
    assert [gap.since_ms for gap in gaps] == sorted(gap.since_ms for gap in gaps)
    assert store.gaps(1) == (2, [gaps[0]])
    world.apply(progress=[ShardProgress(SHARD, 3)])
    assert [gap.shard for gap in store.gaps(10)[1]] == [OTHER_SHARD]


def test_gaps_are_counted_and_the_longest_standing_are_named(world: World) -> None:
    store = world.adapter.finalizer()
    assert store.gaps(9) == (0, [])
    for shard, gap in ((SHARD, "one"), ("none", None), (OTHER_SHARD, "two"), ("zzz", "three")):
        world.adapter.clock.now_ms += 1
        world.apply(progress=[ShardProgress(shard, gap=gap)])
    count, gaps = store.gaps(2)
    assert (count, [(gap.shard, gap.what) for gap in gaps]) == (3, [(SHARD, "one"), (OTHER_SHARD, "two")])
    assert gaps[0].since_ms <= gaps[1].since_ms
    world.apply(progress=[ShardProgress(SHARD)])
    assert store.gaps(9)[0] == 2


def test_what_is_due_is_what_the_sweep_has_not_reached_or_what_came_behind_it(world: World) -> None:
    store = world.adapter.finalizer()
    world.set_frontier(END_MS)
    world.set_frontier(END_MS + 5, OTHER_SHARD)
    assert sorted(store.shards_due(10)) == sorted([(SHARD, END_MS), (OTHER_SHARD, END_MS + 5)])
    assert len(store.shards_due(1)) == 1
    assert store.expire(OTHER_SHARD, END_MS + 5, 10, 1) == 0
    assert store.shards_due(10) == [(SHARD, END_MS)]
    assert store.expire(SHARD, END_MS, 10, 1) == 0
    assert store.shards_due(10) == []
    late = world.create()
    world.create(expires_at_ms=END_MS + 1)
    assert store.shards_due(10) == [(SHARD, END_MS)]
    assert store.expire(SHARD, END_MS, 10, 1) == 1
    assert world.status(late) == "EXPIRED"
    assert store.shards_due(10) == []


def test_expiry_ends_live_alerts_in_bounded_batches_the_earliest_first(world: World) -> None:
    store = world.adapter.finalizer()
    last, first = world.create(expires_at_ms=END_MS), world.create(expires_at_ms=END_MS - 10)
    (active,) = world.create_active(expires_at_ms=END_MS - 5)
    (paused,) = world.create_active(expires_at_ms=END_MS - 7)
    world.move(Event.PAUSE, paused)
    cancelled, later = world.create(), world.create(expires_at_ms=END_MS + 1)
    world.cancel(cancelled)
    elsewhere = world.create(symbol="BTC")
    world.set_frontier(END_MS)
    assert store.expire(SHARD, END_MS, 2, 77) == 2
    assert [world.status(i) for i in (first, paused, active, last)] == ["EXPIRED", "EXPIRED", "ACTIVE", "PENDING"]
    assert world.row("shard_progress", shard=SHARD)["swept_ms"] == 0
    assert store.expire(SHARD, END_MS, 3, 77) == 2
    assert world.row("shard_progress", shard=SHARD)["swept_ms"] == END_MS
    assert [world.status(i) for i in (cancelled, later, elsewhere)] == ["CANCELLED", "PENDING", "PENDING"]
    assert world.live_alerts() == 2
    assert [command for command in world.commands() if command[2] == "remove"] == [
        (paused, 1, "remove"), (cancelled, 1, "remove"), *((i, 1, "remove") for i in sorted([first, paused])),
        *((i, 1, "remove") for i in sorted([last, active])),
    ]  # fmt: skip


def test_a_sweep_never_goes_back(world: World) -> None:
    store = world.adapter.finalizer()
    world.set_frontier(END_MS)
    store.expire(SHARD, END_MS, 10, 1)
    store.expire(SHARD, END_MS - 1, 10, 1)
    store.expire("none", END_MS, 10, 1)
    assert world.row("shard_progress", shard=SHARD)["swept_ms"] == END_MS
