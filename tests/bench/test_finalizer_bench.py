"""The finalizer's benchmark: its burst is one that fires, and its judgement sees what is lost, doubled or made up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.finalizer import GOAL_BURST, is_met, make_frames
from contracts.keys import bucket_of, bucket_shard
from contracts.topics import CANDIDATES, DEAD_LETTERS
from finalizer.consumer import Consumer
from ports.memory_log import MemoryLog
from sql.bench_store import BenchStore, BulkInstrument, Ends
from sql.connection import Pool, transaction
from sql.finalizer_store import PostgresFinalizerStore
from sql.reference_store import ReferenceStore
from tests.finalizer.settable_clock import SettableClock

NOW_MS = 1_700_000_000_000
ALERTS, BURST = 60, 40
SYMBOLS = [f"S{number}" for number in range(7)]


@pytest.fixture
def drained(pool: Pool) -> Iterator[tuple[Pool, list[int]]]:
    """A burst that the production consumer has finalized, some frames of it twice; the ids that were claimed."""
    shards = {symbol: bucket_shard("bench", bucket_of(symbol, 4)) for symbol in SYMBOLS}
    ReferenceStore(pool).create_feed("bench", 4, "replay")
    with transaction(pool) as connection:
        store = BenchStore(connection)
        store.insert_instruments("bench", (BulkInstrument(s, 2, bucket_of(s, 4), b"") for s in shards))
        store.insert_owners(3)
        store.insert_active_alerts(
            range(1, ALERTS + 1), 3, shards, created_at_ms=NOW_MS - 1_000, expires_at_ms=NOW_MS + 10_000_000
        )
        burst = list(range(ALERTS - BURST + 1, ALERTS + 1))
        frames = make_frames(store.places(burst), 3, NOW_MS, 1)
    log = MemoryLog({CANDIDATES.name: 4, DEAD_LETTERS.name: 1})
    writer = log.writer()
    for frame in frames:
        for _ in range(2):
            writer.append(CANDIDATES.name, frame.shard.encode(), frame.SerializeToString(), 0)
    writer.flush()
    consumer = Consumer(
        PostgresFinalizerStore(pool), log.reader(), writer, SettableClock(NOW_MS),
        candidates=CANDIDATES.name, dead_letters=DEAD_LETTERS.name,
    )  # fmt: skip
    while consumer.step():
        pass
    yield pool, burst
    consumer.close()


def ends(pool: Pool, burst: list[int]) -> Ends:
    with transaction(pool) as connection:
        return BenchStore(connection).ends(burst)


def test_a_burst_ends_with_nothing_lost_doubled_or_made_up(drained: tuple[Pool, list[int]]) -> None:
    pool, burst = drained
    assert ends(pool, burst) == Ends(0, 0, 0, 0)
    with transaction(pool) as connection:
        assert BenchStore(connection).count_finalized() == BURST
        assert BenchStore(connection).has_unpublished()


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("DELETE FROM triggers WHERE alert_id = 50", Ends(1, 0, 0, 0)),
        ("UPDATE triggers SET payload = payload - 'evidence' WHERE alert_id = 50", Ends(1, 0, 0, 0)),
        (
            "INSERT INTO triggers (trigger_id, alert_id, owner_id, payload)"
            " SELECT 'again', 1, owner_id, payload FROM triggers WHERE alert_id = 50",
            Ends(0, 1, 0, 0),
        ),
        (
            "INSERT INTO rule_commands (shard, alert_id, version, action)"
            " SELECT shard, alert_id, version, 'remove' FROM rule_commands WHERE alert_id = 50",
            Ends(0, 1, 0, 0),
        ),
        ("UPDATE alerts SET status = 'TRIGGERED', trigger = '{}' WHERE alert_id = 1", Ends(0, 0, 1, 1)),
        ("UPDATE owners SET live_alerts = live_alerts - 1 WHERE owner_id = 1", Ends(0, 0, 0, -1)),
    ],
)
def test_the_judgement_can_fail(drained: tuple[Pool, list[int]], damage: str, found: Ends) -> None:
    pool, burst = drained
    with transaction(pool) as connection:
        connection.execute(damage)
    assert ends(pool, burst) == found


def test_a_goal_is_a_rate_and_for_a_large_burst_its_time_too() -> None:
    assert is_met(20_000, 50_000, 2.5)
    assert not is_met(19_999, 50_000, 2.5)
    assert not is_met(20_000, GOAL_BURST, 61.0)
