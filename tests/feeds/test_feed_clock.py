"""A live feed's clock: what moves the frontier, and what must not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from feeds.domain.feed_clock import FeedClock, SourceState

WALL_MS = 1_767_607_200_000
BOUND_MS, AHEAD_MS = 5_000, 10_000


def new_clock(frontier_ms: int = 0) -> FeedClock:
    return FeedClock(BOUND_MS, AHEAD_MS, frontier_ms, WALL_MS, 1_000)


def test_nothing_is_promised_before_the_first_tick() -> None:
    clock = new_clock()
    clock.observe(SourceState(1, 1_000))
    clock.observe(SourceState(1, 900_000))
    assert clock.frontier_ms() == 0


def test_ticks_move_it_to_the_newest_minus_the_bound_and_late_ones_not_back() -> None:
    clock = new_clock()
    clock.accept(WALL_MS, 1_000)
    clock.accept(WALL_MS - 3_000, 1_500)
    assert clock.frontier_ms() == WALL_MS - BOUND_MS


def test_in_silence_it_moves_with_the_time_between_proofs() -> None:
    clock = new_clock()
    clock.observe(SourceState(1, 1_000))
    clock.accept(WALL_MS, 1_400)
    clock.observe(SourceState(1, 2_000))
    assert clock.frontier_ms() == WALL_MS - BOUND_MS + 600
    clock.observe(SourceState(1, 2_000))
    clock.observe(SourceState(1, 3_000))
    assert clock.frontier_ms() == WALL_MS - BOUND_MS + 1_600


def test_a_tick_that_is_new_takes_the_place_of_the_silence_and_takes_nothing_back() -> None:
    clock = new_clock()
    clock.observe(SourceState(1, 1_000))
    clock.accept(WALL_MS, 1_000)
    clock.observe(SourceState(1, 9_000))
    promised_ms = clock.frontier_ms()
    clock.accept(WALL_MS + 1_000, 9_000)
    assert clock.frontier_ms() == promised_ms
    clock.observe(SourceState(1, 10_000))
    assert clock.frontier_ms() == promised_ms
    clock.accept(WALL_MS + 20_000, 10_000)
    assert clock.frontier_ms() == WALL_MS + 20_000 - BOUND_MS


def test_it_stands_still_while_disconnected_and_after_a_reconnect_until_caught_up() -> None:
    clock = new_clock()
    clock.observe(SourceState(1, 1_000))
    clock.accept(WALL_MS, 1_000)
    clock.observe(SourceState(1, 2_000))
    promised_ms = clock.frontier_ms()
    clock.observe(SourceState(1, None))
    clock.observe(SourceState(2, None))
    clock.accept(WALL_MS - 2_000, 50_000)  # what the outage held back is accepted, it is not late
    clock.observe(SourceState(2, 60_000))
    assert clock.frontier_ms() == promised_ms
    clock.observe(SourceState(2, 61_000))
    assert clock.frontier_ms() == promised_ms + 1_000


def test_a_reconnect_between_two_proofs_is_no_silence() -> None:
    clock = new_clock()
    clock.observe(SourceState(1, 1_000))
    clock.accept(WALL_MS, 1_000)
    clock.observe(SourceState(2, 30_000))
    assert clock.frontier_ms() == WALL_MS - BOUND_MS


def test_a_restarted_gateway_goes_on_from_the_promised_frontier() -> None:
    clock = new_clock(frontier_ms=WALL_MS - 60_000)
    assert clock.frontier_ms() == WALL_MS - 60_000
    clock.observe(SourceState(1, 5_000))
    clock.observe(SourceState(1, 6_000))
    assert clock.frontier_ms() == WALL_MS - 59_000


def test_the_gateways_clock_is_anchored_once() -> None:
    assert new_clock().latest_possible_ms(61_000) == WALL_MS + 60_000 + AHEAD_MS


EVENTS = st.lists(
    st.tuples(st.integers(0, 30_000), st.sampled_from(["tick", "proof", "lag", "reconnect"]), st.integers(0, 20_000)),
    max_size=40,
)


@given(events=EVENTS)
def test_the_frontier_never_goes_back_nor_beyond_newest_plus_the_time_that_passed(
    events: list[tuple[int, str, int]],
) -> None:
    clock, now_ms, connection, newest_ms, newest_at_ms, promised_ms = new_clock(), 1_000, 1, 0, 0, 0
    for elapsed_ms, kind, delay_ms in events:
        now_ms += elapsed_ms
        if kind == "tick":
            event_time_ms = WALL_MS + now_ms - delay_ms
            clock.accept(event_time_ms, now_ms)
            if event_time_ms > newest_ms:
                newest_ms, newest_at_ms = event_time_ms, now_ms
        elif kind == "reconnect":
            connection += 1
        else:
            clock.observe(SourceState(connection, now_ms if kind == "proof" else None))
        frontier_ms = clock.frontier_ms()
        assert frontier_ms >= promised_ms
        if frontier_ms > promised_ms:
            assert frontier_ms <= newest_ms - BOUND_MS + (now_ms - newest_at_ms)
        promised_ms = frontier_ms
