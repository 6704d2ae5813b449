"""The core against the word-for-word matcher on random logs: cut anywhere, crashed anywhere, folded at any size."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import frames_pb2 as pb
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.state import MemoryState, Output
from tests.flink_jobs.domain.reference_matcher import ReferenceMatcher
from tests.flink_jobs.domain.shard_log import (
    SHARD,
    Change,
    Create,
    Entry,
    Heartbeat,
    Marker,
    Reborn,
    Remove,
    Rule,
    Split,
    Tick,
    entries_of,
    records_of,
)

SYMBOLS = st.sampled_from(["AAA", "BBB", "CCC"])
BIG = 1 << 44  # beyond the exact codes


def _rule(draw: st.DrawFn, alert_id: int, now_ms: int) -> Rule:
    created = draw(st.integers(max(1, now_ms - 30), now_ms + 10))
    lifetime = draw(st.sampled_from([5, 20, 1_000]))
    if draw(st.booleans()):
        threshold = draw(st.sampled_from([-3, 0, 1, 2, 2, 3, 5, BIG, BIG + 1]))
        direction = draw(st.sampled_from(["UP", "DOWN", "EITHER"]))
        return Rule(
            alert_id, draw(SYMBOLS), direction, threshold, draw(st.integers(0, 2)), 1, created, created + lifetime
        )
    target = draw(st.sampled_from([1, 7, 10, 10, 11, 15, 20, 30, BIG, BIG + 1]))
    return Rule(
        alert_id, draw(SYMBOLS), draw(st.sampled_from(["ABOVE", "BELOW"])), target, None, 1, created, created + lifetime
    )


def _tick(draw: st.DrawFn, now_ms: int) -> Tick:
    halves = st.one_of(st.integers(-12, 12), st.sampled_from([2 * BIG, 2 * BIG + 1, -2 * BIG - 3]))
    windows = sorted(draw(st.sets(st.integers(0, 2), max_size=3)))
    changes = []
    for window in windows:
        previous, current = draw(halves), draw(halves)
        if previous // 2 < current // 2 or -previous // 2 < -current // 2:
            changes.append(Change(window, previous, current))
    prices = st.one_of(st.integers(5, 32), st.sampled_from([BIG, BIG + 2]))
    previous_time = draw(st.integers(max(1, now_ms - 25), now_ms))
    return Tick(draw(SYMBOLS), now_ms, draw(prices), draw(st.one_of(st.just(0), prices)), previous_time, tuple(changes))


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    now_ms, log, rules = 100, [], {}
    for step in range(draw(st.integers(1, 45))):
        kind = draw(st.sampled_from("cccccrrvtttttttthms"))
        if kind == "c":
            rules[step + 1] = _rule(draw, step + 1, now_ms)
            log.append(Create(rules[step + 1]))
        elif kind in "rv" and rules:
            alert_id = draw(st.sampled_from(sorted(rules)))
            version = draw(st.integers(1, 3))
            rule = Rule(**{**vars(rules[alert_id]), "version": version})
            log.append(Remove(rule) if kind == "r" else Create(rule))
        elif kind == "t":
            now_ms += draw(st.sampled_from([0, 0, 1, 4]))
            log.append(_tick(draw, now_ms))
        elif kind == "h":
            log.append(Heartbeat(now_ms - 1))
        elif kind == "m":
            log.append(Marker(step))
        elif kind == "s":
            ratio = draw(st.sampled_from([(2, 1), (3, 1), (1, 2), (3, 2)]))
            log.append(Split(draw(SYMBOLS), now_ms + draw(st.integers(-20, 5)), *ratio))
    return log


@st.composite
def reborn_logs(draw: st.DrawFn) -> list[Entry]:
    """The metrics begin anew up to three times, from the first or a later one, also before they were through again; and
    commands come between them that were not there before."""
    log = draw(logs())
    whole: list[Entry] = []
    done, fresh = 0, 1_000
    for at in sorted(draw(st.lists(st.integers(0, len(log)), min_size=1, max_size=2))):
        whole += log[done:at]
        done = at
        metrics = [entry for entry in log[:at] if not isinstance(entry, (Create, Remove))]
        if draw(st.booleans()):
            begun = _fed_again(draw, metrics, fresh)
            whole += begun[: draw(st.integers(1, len(begun)))]
        whole += _fed_again(draw, metrics, fresh + 100)
        fresh += 200
    return whole + log[done:]


def _fed_again(draw: st.DrawFn, metrics: Sequence[Entry], fresh: int) -> list[Entry]:
    """From where time moves on, so that no symbol's ticks of one time are torn apart; new rule ids from `fresh`."""
    ticks = [place for place, entry in enumerate(metrics) if isinstance(entry, Tick)]
    places = [
        0,
        *(after for before, after in itertools.pairwise(ticks) if _time(metrics[before]) < _time(metrics[after])),
    ]
    start = draw(st.sampled_from(places))
    again: list[Entry] = [Reborn(Counter(entry.symbol for entry in metrics[:start] if isinstance(entry, Tick)))]
    for number, entry in enumerate(metrics[start:]):
        if draw(st.integers(0, 3)) == 0:
            again.append(Create(_rule(draw, fresh + number, draw(st.integers(90, 130)))))
        again.append(entry)
    return again


def _time(entry: Entry) -> int:
    assert isinstance(entry, Tick)
    return entry.time_ms


def cuts() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, 45), max_size=20)


def run(core: MatcherCore, records: list[bytes]) -> list[Output]:
    return [output for record in records for output in core.process(record)]


@settings(max_examples=60, deadline=None)
@given(log=logs(), at=cuts(), delta_rows=st.sampled_from([1, 3, 8, 1_000]))
def test_it_claims_what_the_rules_say_however_the_log_is_cut_and_folded(
    log: list[Entry], at: list[int], delta_rows: int
) -> None:
    expected = ReferenceMatcher().run(log)
    outputs = run(MatcherCore(MemoryState(), SHARD, 1, delta_rows), records_of(log, at))
    assert entries_of(outputs) == expected
    numbers = []
    for output in outputs:
        frame = pb.CandidateFrame.FromString(output.value)
        numbers += range(frame.first_number, frame.first_number + len(frame.entries))
    assert numbers == list(range(1, len(expected) + 1))


@settings(max_examples=60, deadline=None)
@given(log=reborn_logs(), at=cuts(), delta_rows=st.sampled_from([1, 3, 1_000]), crash_at=st.integers(1, 60))
def test_metrics_that_are_fed_again_fire_nothing(
    log: list[Entry], at: list[int], delta_rows: int, crash_at: int
) -> None:
    records, state = records_of(log, at), MemoryState()
    outputs = run(MatcherCore(state, SHARD, 1, delta_rows), records[:crash_at])
    outputs += run(MatcherCore(state.copy(), SHARD, 2, delta_rows), records[crash_at:])
    assert entries_of(outputs) == ReferenceMatcher().run(log)


@settings(max_examples=40, deadline=None)
@given(log=logs(), at=cuts(), delta_rows=st.sampled_from([1, 4, 1_000]), crash_at=st.integers(1, 45))
def test_a_core_made_from_the_state_goes_on_byte_for_byte(
    log: list[Entry], at: list[int], delta_rows: int, crash_at: int
) -> None:
    records = records_of(log, at)
    crash_at = min(crash_at, len(records))
    undisturbed, state = MemoryState(), MemoryState()
    expected = run(MatcherCore(undisturbed, SHARD, 1, delta_rows), records)
    before = run(MatcherCore(state, SHARD, 1, delta_rows), records[:crash_at])
    behind = run(MatcherCore(state.copy(), SHARD, 2, delta_rows), records[crash_at:])
    assert before + behind == expected


@settings(max_examples=25, deadline=None)
@given(log=logs(), at=cuts(), again=cuts(), crash_at=st.integers(0, 45))
def test_a_log_written_twice_and_cut_differently_changes_nothing(
    log: list[Entry], at: list[int], again: list[int], crash_at: int
) -> None:
    core = MatcherCore(MemoryState(), SHARD, 1, 3)
    outputs = run(core, records_of(log, at)[:crash_at]) + run(core, records_of(log, again))
    assert entries_of(outputs) == ReferenceMatcher().run(log)


@settings(max_examples=25, deadline=None)
@given(log=logs(), at=cuts())
def test_crashing_after_every_record_changes_nothing(log: list[Entry], at: list[int]) -> None:
    records = records_of(log, at)
    state, outputs = MemoryState(), []
    for record in records:
        outputs += run(MatcherCore(state, SHARD, 1, 5), [record])
        state = state.copy()
    assert entries_of(outputs) == ReferenceMatcher().run(log)
