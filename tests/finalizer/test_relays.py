"""The two outboxes and the sweeper, on real Postgres."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.frames_pb2 import ShardLogRecord
from contracts.trigger import TriggerMessage
from finalizer.domain.batch import BatchPlan, ShardProgress
from finalizer.failpoints import Failpoint, survive
from finalizer.ports import FencedError, Moves
from finalizer.rule_relay import RuleRelay, rule_of
from finalizer.sweeper import Sweeper
from finalizer.trigger_relay import TriggerRelay
from ports.memory_log import MemoryLog
from sql.connection import Pool
from sql.finalizer_store import PostgresFinalizerStore
from sql.relay_store import PostgresRuleRelayStore, PostgresTriggerRelayStore
from tests.finalizer.settable_clock import DieAt, DiedError, SettableClock
from tests.finalizer.world import DEAD_LETTERS, END_MS, SHARD, SHARD_LOG, START_MS, TOPIC, TRIGGERS, World


def relay_of(pool: Pool, log: MemoryLog, fail: Failpoint = survive) -> RuleRelay:
    return RuleRelay(PostgresRuleRelayStore(pool), log.writer(), shard_log=SHARD_LOG, fail=fail)


def drain(service: Any) -> None:
    while service.step():
        pass


def numbered(log: MemoryLog) -> list[tuple[int, int]]:
    """(number, alert_id) of the shard log as its reader takes it: a number at or below the last is skipped."""
    found: list[tuple[int, int]] = []
    for record in log.records(SHARD_LOG):
        frame = ShardLogRecord.FromString(record.value).commands
        assert (record.key, frame.shard, frame.epoch) == (SHARD.encode(), SHARD, 1)
        for number, command in enumerate(frame.commands, frame.first_number):
            assert number <= len(found) + 1, "a gap"
            if number == len(found) + 1:
                found.append((number, rule_of(command).alert_id))
            else:
                assert found[number - 1] == (number, rule_of(command).alert_id), "one number, two commands"
    return found


def test_a_late_commit_is_not_skipped(world: World, log: MemoryLog) -> None:
    """A takes a lower command_id and stays open, B commits, the relay runs, A commits, the relay runs."""
    a, b = world.add_alerts(2)
    world.rows("DELETE FROM rule_commands")
    insert = "INSERT INTO rule_commands (shard, alert_id, version, action) VALUES (%s, %s, 1, 'create')"
    relay = relay_of(world.pool, log)
    with world.pool.connection() as open_transaction:
        open_transaction.execute(insert, (SHARD, a))
        world.rows(insert, SHARD, b)
        drain(relay)
        assert numbered(log) == [(1, b)]
    drain(relay)
    assert numbered(log) == [(1, b), (2, a)]
    relay.close()


def test_late_shards_have_their_turn_while_early_ones_never_run_dry(
    world: World, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("finalizer.rule_relay.MAX_SHARDS_A_STEP", 2)
    shards = [f"stocks/{number}~1" for number in range(5)]
    for shard in shards:
        world.add_alerts(1, shard=shard)
    relay = relay_of(world.pool, log)
    for _ in range(3):
        assert relay.step()
        for shard in shards[:2]:
            world.add_alerts(1, shard=shard)
    assert {record.key.decode() for record in log.records(SHARD_LOG)} == set(shards)
    drain(relay)
    relay.close()
    assert world.value("SELECT count(*) FROM rule_commands WHERE published_at IS NULL") == 0


def test_numbered_commands_that_a_read_cut_off_go_before_new_ones(
    world: World, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash more are numbered than one read takes; the read is in order of shard."""
    monkeypatch.setattr("finalizer.rule_relay.MAX_COMMANDS_A_STEP", 3)
    early, late = "stocks/0~1", "stocks/9~1"
    world.add_alerts(3, shard=late)
    dying = relay_of(world.pool, log, DieAt("numbered"))
    with pytest.raises(DiedError):
        dying.step()
    dying.close()
    relay = relay_of(world.pool, log)
    for _ in range(4):
        world.add_alerts(3, shard=early)  # as much as a step takes
        assert relay.step()
    assert late in {record.key.decode() for record in log.records(SHARD_LOG)}
    drain(relay)
    relay.close()
    assert world.value("SELECT count(*) FROM rule_commands WHERE published_at IS NULL") == 0


@pytest.mark.parametrize("point", ["numbered", "appended", "flushed", "marked"])
def test_a_killed_relay_repeats_its_numbers(point: str, world: World, log: MemoryLog) -> None:
    ids = world.add_alerts(5)
    die = DieAt(point)
    dying = relay_of(world.pool, log, die)
    with pytest.raises(DiedError):
        dying.step()
    assert die.died
    dying.close()
    ids += world.add_alerts(3)
    relay = relay_of(world.pool, log)
    drain(relay)
    relay.close()
    assert numbered(log) == list(enumerate(ids, 1))
    assert world.value("SELECT count(*) FROM rule_commands WHERE published_at IS NULL") == 0


def test_a_fenced_relay_changes_nothing_and_a_standby_waits(world: World, log: MemoryLog) -> None:
    world.add_alerts(2)
    old, new = PostgresRuleRelayStore(world.pool), PostgresRuleRelayStore(world.pool)
    assert old.lead()
    assert not new.lead()
    stale = old.take([SHARD])
    fresh = new.take([SHARD])
    with pytest.raises(FencedError):
        old.number(stale, 10)
    assert new.number(fresh, 10) == 2
    with pytest.raises(FencedError):
        old.mark_published(stale, [1, 2])
    assert world.value("SELECT count(*) FROM rule_commands WHERE published_at IS NULL") == 2
    old.resign()
    assert new.lead()
    new.resign()


def test_a_fenced_service_stands_by_and_takes_over_again(world: World, log: MemoryLog) -> None:
    first = world.add_alerts(1)
    relay = relay_of(world.pool, log)
    drain(relay)
    PostgresRuleRelayStore(world.pool).take([SHARD])
    ids = first + world.add_alerts(1)
    assert not relay.step()
    assert relay.detail()["fenced"] == 1
    drain(relay)
    relay.close()
    assert numbered(log) == list(enumerate(ids, 1))


def test_the_command_carries_the_rule(world: World, log: MemoryLog) -> None:
    (alert_id,) = world.add_alerts(1)
    relay = relay_of(world.pool, log)
    drain(relay)
    world.cancel(alert_id)
    drain(relay)
    relay.close()
    create, remove = (ShardLogRecord.FromString(r.value).commands.commands[0] for r in log.records(SHARD_LOG))
    assert create.create.rule == remove.remove.rule
    rule = create.create.rule
    assert (rule.alert_id, rule.version, rule.symbol, rule.window, rule.threshold) == (alert_id, 1, "AAA", 1, 500)
    assert (rule.created_at_ms, rule.expires_at_ms) == (START_MS, END_MS)


def set_frontier(world: World, frontier_ms: int) -> None:
    store = PostgresFinalizerStore(world.pool)
    position = store.positions(TOPIC, 1)[0]
    with store.advance(Moves(TOPIC, {0: (position, position + 1)})) as work:
        work.apply(BatchPlan(progress=[ShardProgress(SHARD, frontier_ms=frontier_ms)]), 1)


def test_alerts_expire_behind_the_frontier_in_bounded_batches(
    world: World, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("finalizer.sweeper.MAX_ALERTS_A_TRANSACTION", 3)
    world.add_alerts(7)
    later = world.add_alerts(1, expires_at_ms=END_MS + 1)
    sweeper = Sweeper(PostgresFinalizerStore(world.pool), clock)
    set_frontier(world, END_MS - 1)
    drain(sweeper)
    assert world.statuses() == {"PENDING": 8}
    set_frontier(world, END_MS)
    assert sweeper.step()
    assert world.statuses() == {"PENDING": 5, "EXPIRED": 3}
    assert world.value("SELECT swept_ms FROM shard_progress") == END_MS - 1
    drain(sweeper)
    assert world.value("SELECT swept_ms FROM shard_progress") == END_MS
    assert world.alert(later[0])["status"] == "PENDING"
    assert world.statuses() == {"PENDING": 1, "EXPIRED": 7}
    world.check_invariants()


def test_an_alert_committed_behind_the_sweep_still_expires(world: World, clock: SettableClock) -> None:
    sweeper = Sweeper(PostgresFinalizerStore(world.pool), clock)
    set_frontier(world, END_MS)
    drain(sweeper)
    world.add_alerts(1)
    drain(sweeper)
    assert world.statuses() == {"EXPIRED": 1}


def test_the_sweeper_leaves_held_rows_and_its_cursor_behind_them(world: World, clock: SettableClock) -> None:
    held, free = world.add_alerts(2)
    set_frontier(world, END_MS)
    sweeper = Sweeper(PostgresFinalizerStore(world.pool), clock)
    with world.pool.connection() as other:
        other.execute("SELECT 1 FROM alerts WHERE alert_id = %s FOR UPDATE", (held,))
        drain(sweeper)
        assert (world.alert(held)["status"], world.alert(free)["status"]) == ("PENDING", "EXPIRED")
        assert world.value("SELECT swept_ms FROM shard_progress") == 0
    drain(sweeper)
    assert world.statuses() == {"EXPIRED": 2}
    assert world.value("SELECT swept_ms FROM shard_progress") == END_MS


EVIDENCE = {
    "event_time_ms": 5, "sequence": None, "session": 1, "price": "1.1", "window": "1h", "fired": "UP", "epoch": 1,
    "position": 1, "version": 1, "active_from_event_time_ms": 1, "finalized_at_ms": 1, "reference_time_ms": 1,
    "reference_price": "1", "previous_bps": 1, "current_bps": 1000,
}  # fmt: skip


def add_trigger(world: World, alert_id: int, channel_ids: list[int], note: str = "é 📈") -> str:
    """An outbox row as the finalizer writes it; its trigger_id."""
    from psycopg.types.json import Jsonb

    trigger_id = f"trg_{alert_id}_0"
    payload = {
        "trigger_id": trigger_id, "alert_id": alert_id, "owner_id": world.owner_id, "symbol": "AAA", "kind": "change",
        "window": "1h", "direction": "UP", "threshold_bps": 500, "target": None, "note": note, "created_at_ms": 1,
        "expires_at_ms": 2, "channel_ids": channel_ids, "evidence": EVIDENCE,
    }  # fmt: skip
    world.rows(
        "INSERT INTO triggers (trigger_id, alert_id, owner_id, payload) VALUES (%s, %s, %s, %s)",
        trigger_id, alert_id, world.owner_id, Jsonb(payload),
    )  # fmt: skip
    return trigger_id


@pytest.mark.parametrize("point", ["appended", "flushed", "committed"])
def test_a_killed_trigger_relay_loses_nothing(point: str, world: World, log: MemoryLog) -> None:
    expected = {add_trigger(world, alert_id, []) for alert_id in world.add_alerts(4)}

    def relay(fail: Failpoint = survive) -> TriggerRelay:
        store = PostgresTriggerRelayStore(world.pool)
        return TriggerRelay(store, log.writer(), triggers=TRIGGERS, dead_letters=DEAD_LETTERS, fail=fail)

    with pytest.raises(DiedError):
        relay(DieAt(point)).step()
    drain(relay())
    found = [TriggerMessage.model_validate_json(record.value).trigger_id for record in log.records(TRIGGERS)]
    assert set(found) == expected
    assert len(found) == (8 if point == "flushed" else 4)
    assert world.value("SELECT count(*) FROM triggers WHERE published_at IS NULL") == 0


def test_an_unreadable_outbox_row_holds_nothing_up(world: World, log: MemoryLog) -> None:
    bad, good = world.add_alerts(2)
    add_trigger(world, bad, [])
    world.rows("""UPDATE triggers SET payload = '{"odd": 1}'""")
    expected = add_trigger(world, good, [])
    store = PostgresTriggerRelayStore(world.pool)
    drain(TriggerRelay(store, log.writer(), triggers=TRIGGERS, dead_letters=DEAD_LETTERS))
    (record,) = log.records(TRIGGERS)
    assert TriggerMessage.model_validate_json(record.value).trigger_id == expected
    assert len(log.records(DEAD_LETTERS)) == 1
