from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flink_jobs.domain.state import MemoryState
from flink_jobs.domain.tombstones import CHUNK_TOMBSTONES, Tombstones


def test_the_highest_version_stands_and_the_oldest_goes_first() -> None:
    tombstones = Tombstones(max_count=2)
    for alert_id, version in ((1, 5), (2, 1), (1, 3), (3, 1)):
        tombstones.bury(alert_id, version, 100)
    assert [tombstones.version_of(alert_id) for alert_id in (1, 2, 3)] == [5, 0, 1]


def test_a_tombstone_is_over_after_its_period_of_event_time() -> None:
    tombstones = Tombstones(period_ms=10)
    tombstones.bury(1, 1, 100)
    tombstones.bury(2, 1, 109)
    assert tombstones.version_of(1) == 1
    tombstones.bury(3, 1, 110)
    assert (tombstones.version_of(1), tombstones.version_of(2)) == (0, 1)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 3), st.integers(0, 4), st.booleans()), max_size=60))
def test_written_and_read_at_any_time_it_remembers_the_same(steps: list[tuple[int, int, int, bool]]) -> None:
    state, now_ms = MemoryState(), 100
    kept, other = Tombstones(5, 10), Tombstones(5, 10)
    for alert_id, version, later_ms, restart in steps:
        now_ms += later_ms
        kept.bury(alert_id, version, now_ms)
        other.bury(alert_id, version, now_ms)
        if restart:
            other.write(state)
            other = Tombstones.read(state, other.first_number, other.next_number, 5, 10)
        assert [kept.version_of(n) for n in range(1, 9)] == [other.version_of(n) for n in range(1, 9)]


def test_chunks_that_are_over_leave_the_state() -> None:
    state, tombstones = MemoryState(), Tombstones(max_count=10)
    for alert_id in range(3 * CHUNK_TOMBSTONES):
        tombstones.bury(alert_id, 1, 100)
        if alert_id % 500 == 0:
            tombstones.write(state)
    tombstones.write(state)
    assert list(state.entries) == ["tombstones/2"]
