"""Candidates to facts, on real Postgres."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from structlog.testing import capture_logs

from contracts.dead_letter import DeadLetter
from contracts.frames_pb2 import CandidateFrame, Counts, Direction
from contracts.prices import format_price
from contracts.trigger import TriggerMessage
from finalizer.consumer import GAP_LOG_MS, GAP_LOOK_MS, Consumer
from ports.memory_log import MemoryLog
from sql.finalizer_store import PostgresFinalizerStore
from tests.finalizer.settable_clock import DieAt, DiedError, SettableClock
from tests.finalizer.world import (
    DEAD_LETTERS,
    END_MS,
    SHARD,
    START_MS,
    TOPIC,
    World,
    activation,
    candidate,
    frame,
    frontier,
    marker,
)

MakeConsumer = Callable[..., Consumer]


def publish(log: MemoryLog, *frames: CandidateFrame) -> None:
    writer = log.writer()
    for each in frames:
        writer.append(TOPIC, each.shard.encode(), each.SerializeToString(), START_MS)
    writer.flush()


def drain(consumer: Consumer) -> Consumer:
    while consumer.step():
        pass
    return consumer


def test_a_claim_becomes_a_fact_with_its_evidence(world: World, log: MemoryLog, make_consumer: MakeConsumer) -> None:
    channel = world.add_channel()
    (alert_id,) = world.add_alerts(1)
    publish(log, frame([activation(alert_id, 1), candidate(alert_id, 9)]))
    drain(make_consumer())
    alert = world.alert(alert_id)
    assert (alert["status"], alert["active_epoch"], alert["active_position"]) == ("TRIGGERED", 1, 1)
    evidence = {
        "event_time_ms": START_MS + 5, "sequence": 7, "session": 3, "price": "105", "window": "1h", "fired": "UP",
        "reference_time_ms": START_MS - 3_600_000, "reference_price": "100", "previous_bps": 499, "current_bps": 500,
        "epoch": 1, "position": 9, "version": 1, "active_from_event_time_ms": START_MS,
        "finalized_at_ms": 1_700_000_000_000,
    }  # fmt: skip
    assert alert["trigger"] == evidence
    (row,) = world.rows("SELECT * FROM triggers")
    message = TriggerMessage.model_validate(row["payload"])
    assert message.trigger_id == row["trigger_id"]
    assert message.trigger_id.startswith(f"trg_{alert_id}_")
    assert (message.note, message.threshold_bps, message.target, message.channel_ids) == ("é 📈", 500, None, [channel])
    assert message.evidence.model_dump(exclude_none=True) == evidence
    assert world.commands() == [(alert_id, 1, "create"), (alert_id, 1, "remove")]
    world.check_invariants()


def test_a_price_claim_carries_the_price_before_and_no_sequence_is_null(
    world: World, log: MemoryLog, make_consumer: MakeConsumer
) -> None:
    (alert_id,) = world.add_alerts(1, kind="price")
    price = candidate(
        alert_id, 2, fired=Direction.ABOVE, sequence=0, window=0, price_scaled=10_501, previous_price_scaled=10_499,
        previous_event_time_ms=START_MS - 1,
    )  # fmt: skip
    publish(log, frame([activation(alert_id, 1), price]))
    drain(make_consumer())
    trigger = world.alert(alert_id)["trigger"]
    assert (trigger["sequence"], trigger["price"], trigger["window"]) == (None, "105.01", None)
    assert (trigger["previous_price"], trigger["previous_event_time_ms"]) == ("104.99", START_MS - 1)
    assert "current_bps" not in trigger
    assert world.rows("SELECT payload FROM triggers")[0]["payload"]["target"] == "105"


def test_the_database_writes_prices_as_the_contract_does(world: World) -> None:
    cases = [(1, 18), (10_500, 2), (172, 11), ((1 << 48) - 1, 0), (100, 0), ((1 << 48) - 1, 18), (70_000_000, 3)]
    for scaled, decimals in cases:
        text = world.value("SELECT trim_scale(%s::bigint * ('1e-' || %s::integer)::numeric)::text", scaled, decimals)
        assert text == format_price(scaled, decimals)
        assert Decimal(text).scaleb(decimals) == scaled


def test_of_several_claims_the_earliest_position_wins(
    world: World, log: MemoryLog, make_consumer: MakeConsumer
) -> None:
    (alert_id,) = world.add_alerts(1)
    claims = [candidate(alert_id, 5, price_scaled=105_00), candidate(alert_id, 8, price_scaled=106_00)]
    publish(log, frame([activation(alert_id, 1), *claims]))
    drain(make_consumer())
    assert (world.alert(alert_id)["trigger"]["position"], world.alert(alert_id)["trigger"]["price"]) == (5, "105")
    world.check_invariants()


@pytest.mark.parametrize("at_ms", [START_MS - 1, END_MS])
def test_a_refused_claim_installs_the_rule_again(
    at_ms: int, world: World, log: MemoryLog, make_consumer: MakeConsumer
) -> None:
    (alert_id,) = world.add_alerts(1)
    publish(log, frame([activation(alert_id, 1), candidate(alert_id, 2, at_ms=at_ms)]))
    consumer = drain(make_consumer())
    alert = world.alert(alert_id)
    assert (alert["status"], alert["version"], alert["active_position"]) == ("PENDING", 2, None)
    assert world.commands() == [(alert_id, 1, "create"), (alert_id, 2, "create")]
    publish(log, frame([candidate(alert_id, 3)], first=3), frame([activation(alert_id, 4, version=2)], first=4))
    drain(consumer)
    assert world.alert(alert_id)["status"] == "ACTIVE"  # the claim of version 1 changed nothing
    publish(log, frame([candidate(alert_id, 5, version=2)], first=5))
    drain(consumer)
    assert world.alert(alert_id)["status"] == "TRIGGERED"
    world.check_invariants()


def test_a_claim_of_another_shard_changes_nothing(world: World, log: MemoryLog, make_consumer: MakeConsumer) -> None:
    (alert_id,) = world.add_alerts(1)
    publish(log, frame([activation(alert_id, 1)]), frame([candidate(alert_id, 1)], shard="other/0~1"))
    drain(make_consumer())
    assert world.alert(alert_id)["status"] == "ACTIVE"


def test_frontier_marker_and_counters_are_kept_and_a_replay_changes_nothing(
    world: World, log: MemoryLog, make_consumer: MakeConsumer
) -> None:
    ids = world.add_alerts(3)
    first = frame([*[activation(i, n) for n, i in enumerate(ids, 1)], frontier(50, 4, Counts(rejected=1, late=2))])
    second = frame([candidate(ids[0], 5), marker(6, 6)], first=5)
    publish(log, first, second)
    drain(make_consumer())
    before = world.rows("SELECT * FROM shard_progress")
    (row,) = before
    assert (row["frontier_ms"], row["marker_id"], row["position"], row["number"]) == (50, 6, 6, 6)
    assert (row["rejected"], row["duplicate"], row["late"], row["metrics_epoch"]) == (1, 0, 2, 4)
    publish(log, first, second, frame([*first.entries, *second.entries]), first)  # also cut otherwise
    drain(make_consumer())
    assert world.rows("SELECT * FROM shard_progress") == before
    assert world.statuses() == {"TRIGGERED": 1, "ACTIVE": 2}
    world.check_invariants()


def test_a_gap_is_recorded_until_it_is_filled(world: World, log: MemoryLog, make_consumer: MakeConsumer) -> None:
    ids = world.add_alerts(2)
    publish(log, frame([activation(ids[0], 1)]), frame([candidate(ids[0], 3)], first=3))
    consumer = drain(make_consumer())
    gap = world.value("SELECT gap FROM shard_progress")
    assert "number 2 is missing, 3 came (candidates.v1[" in gap
    assert world.alert(ids[0])["status"] == "ACTIVE"
    publish(log, frame([activation(ids[1], 2), candidate(ids[0], 3)], first=2))
    drain(consumer)
    assert world.value("SELECT gap FROM shard_progress") is None
    assert world.alert(ids[0])["status"] == "TRIGGERED"


def test_a_gap_that_nobody_fills_is_said_again_until_it_is_filled(
    world: World, log: MemoryLog, clock: SettableClock, make_consumer: MakeConsumer
) -> None:
    first, last = world.add_alerts(2)
    broken = [frame([candidate(first, 3)], first=3, shard=shard) for shard in (SHARD, "stocks/1~9")]
    publish(log, frame([activation(first, 1)]), *broken)
    with capture_logs() as said:
        drain(make_consumer())
    assert [line["shard"] for line in said if line["log_level"] == "error"] == [SHARD, "stocks/1~9"]
    consumer = make_consumer()  # restarted, and another may have found the gap: the database tells
    with capture_logs() as said:
        drain(consumer)
        clock.now_ms += GAP_LOG_MS - 1
        drain(consumer)
    assert len(said) == 2
    told = consumer.detail()["gaps"]
    assert (told["shards"], [gap["shard"] for gap in told["oldest"]]) == (2, [SHARD, "stocks/1~9"])
    stamp = world.value("SELECT extract(epoch FROM updated_at) FROM shard_progress WHERE shard = %s", SHARD)
    assert told["oldest"][0]["since_ms"] == int(stamp * 1000)
    assert "number 2 is missing" in told["oldest"][0]["what"]
    with capture_logs() as said:
        clock.now_ms += 1 + GAP_LOOK_MS
        drain(consumer)
    assert len(said) == 2
    publish(log, frame([activation(last, 2), candidate(first, 3)], first=2))
    drain(consumer)
    assert [gap["shard"] for gap in consumer.detail()["gaps"]["oldest"]] == ["stocks/1~9"]


def test_a_new_epoch_begins_at_one_and_an_old_one_is_over(
    world: World, log: MemoryLog, make_consumer: MakeConsumer
) -> None:
    ids = world.add_alerts(2)
    publish(
        log,
        frame([activation(ids[0], 1)], epoch=2),
        frame([activation(ids[1], 2)], first=2, epoch=3),  # does not begin at 1
        frame([activation(ids[1], 2)], first=2, epoch=1),
    )
    consumer = drain(make_consumer())
    assert "epoch 3 begins at number 2" in world.value("SELECT gap FROM shard_progress")
    assert world.statuses() == {"ACTIVE": 1, "PENDING": 1}
    publish(log, frame([activation(ids[1], 1)], epoch=3))
    drain(consumer)
    assert world.statuses() == {"ACTIVE": 2}


def test_corrupt_records_become_dead_letters_and_the_partition_goes_on(
    world: World, log: MemoryLog, make_consumer: MakeConsumer
) -> None:
    (alert_id,) = world.add_alerts(1)
    writer = log.writer()
    wild = frame([candidate((1 << 64) - 1, 1)], shard=SHARD)
    bad = [b"\xff\xff\xff", wild.SerializeToString(), frame([], epoch=(1 << 64) - 1).SerializeToString()]
    for value in bad:
        writer.append(TOPIC, SHARD.encode(), value, START_MS)
    writer.append(TOPIC, b"another key", frame([activation(alert_id, 1)]).SerializeToString(), START_MS)
    writer.flush()
    publish(log, frame([activation(alert_id, 1)]))
    consumer = drain(make_consumer())
    letters = [DeadLetter.model_validate_json(record.value) for record in log.records(DEAD_LETTERS)]
    assert len(letters) == 4
    assert {letter.reason for letter in letters} == {"bad_frame"}
    assert sorted(letter.position for letter in letters if letter.feed == "stocks") == [0, 1, 2]
    assert consumer.detail()["corrupt_records"] == 4
    assert world.alert(alert_id)["status"] == "ACTIVE"


@pytest.mark.parametrize("point", ["before commit", "after commit"])
def test_a_kill_around_the_commit_loses_and_doubles_nothing(
    point: str, world: World, log: MemoryLog, make_consumer: MakeConsumer
) -> None:
    ids = world.add_alerts(20)
    entries = [activation(i, n) for n, i in enumerate(ids, 1)]
    publish(log, frame(entries), frame([candidate(i, 20 + n) for n, i in enumerate(ids, 1)], first=21))
    die = DieAt(point)
    dying = make_consumer(die)
    with pytest.raises(DiedError):
        drain(dying)
    drain(dying)  # the same process goes on after an error
    drain(make_consumer())  # and a fresh one finds nothing left
    assert die.died
    assert world.statuses() == {"TRIGGERED": 20}
    world.check_invariants()


def test_two_instances_share_nothing_but_the_positions(
    world: World, log: MemoryLog, make_consumer: MakeConsumer
) -> None:
    ids = world.add_alerts(200)
    consumers = [make_consumer(), make_consumer()]
    for consumer in consumers:
        consumer.step()
    for n, i in enumerate(ids):
        publish(log, frame([activation(i, 2 * n + 1), candidate(i, 2 * n + 2)], first=2 * n + 1))
    failures: list[BaseException] = []

    def run(consumer: Consumer) -> None:
        try:
            drain(consumer)
        except BaseException as error:  # a thread's error must reach the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert world.statuses() == {"TRIGGERED": 200}
    world.check_invariants()


def test_cancel_trigger_and_expiry_race_to_one_end(world: World, log: MemoryLog, make_consumer: MakeConsumer) -> None:
    """200 alerts, each DELETE twice, against the crossing and the sweeper."""
    ids = world.add_alerts(200)
    consumer = make_consumer()
    publish(log, frame([activation(i, n) for n, i in enumerate(ids, 1)]))
    drain(consumer)
    store = PostgresFinalizerStore(world.pool)
    cancelled: list[list[int]] = []
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def guarded(work: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            start.wait()
            try:
                work()
            except BaseException as error:  # a thread's error must reach the test
                failures.append(error)

        return run

    def expire() -> None:
        for _ in range(40):
            store.expire(SHARD, END_MS, 5, 1)

    def trigger() -> None:
        for n, i in enumerate(ids):
            publish(log, frame([candidate(i, 201 + n)], first=201 + n))
            if n % 5 == 4:
                consumer.step()
        drain(consumer)

    def cancel(order: list[int]) -> None:
        cancelled.append([world.cancel(i) for i in order])

    works = [expire, trigger, lambda: cancel(ids), lambda: cancel(ids[::-1])]
    threads = [threading.Thread(target=guarded(work)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    statuses = world.statuses()
    assert sum(statuses.values()) == 200
    assert set(statuses) <= {"TRIGGERED", "CANCELLED", "EXPIRED"}
    assert sum(map(sum, cancelled)) == statuses.get("CANCELLED", 0)
    world.check_invariants()
