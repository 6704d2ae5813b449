"""The index against a scan of all rules: duplicates of thresholds, removals, lifetimes, folds at any time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flink_jobs.domain.index_rows import Part
from flink_jobs.domain.rule_run import RuleRun
from flink_jobs.domain.state import MemoryState
from flink_jobs.domain.threshold_index import ThresholdIndex
from flink_jobs.domain.threshold_keys import list_base, threshold_code

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("install"), st.integers(0, 3), st.integers(-2, 6), st.integers(0, 9), st.integers(1, 9)),
        st.tuples(st.just("remove"), st.integers(0, 400)),
        st.tuples(st.just("cross"), st.integers(0, 3), st.integers(-3, 6), st.integers(0, 5), st.integers(0, 19)),
        st.tuples(st.just("fold")),
        st.tuples(st.just("restore")),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_it_finds_what_a_scan_finds(steps: list[tuple[object, ...]]) -> None:
    state = MemoryState()
    index, directory = ThresholdIndex(state), b""
    rules: dict[int, tuple[int, int, int, int]] = {}  # alert -> list, threshold, active from, expires at
    for number, (kind, *values) in enumerate(steps):
        numbers = [int(value) for value in values if isinstance(value, int)]
        if kind == "install":
            at, threshold, active_from, lifetime = numbers
            rules[1_000 - number] = (at, threshold, active_from, active_from + lifetime)
            key = list_base(at, 4) + threshold_code(threshold)
            index.install((key, threshold, 1_000 - number, 1, 0, active_from, active_from + lifetime))
        elif kind == "remove" and rules:
            alert_id = sorted(rules)[numbers[0] % len(rules)]
            at, threshold, *_ = rules.pop(alert_id)
            found = index.find(list_base(at, 4) + threshold_code(threshold), threshold, alert_id)
            assert found is not None
            index.kill(found.place, found.row)
            assert index.find(list_base(at, 4) + threshold_code(threshold), threshold, alert_id) is None
        elif kind == "cross":
            at, low, width, time_ms = numbers
            expected = sorted(
                (threshold, alert_id)
                for alert_id, (rule_list, threshold, active_from, expires_at) in rules.items()
                if rule_list == at and low <= threshold <= low + width and active_from <= time_ms < expires_at
            )
            assert _cross(index, at, low, low + width, time_ms) == expected
            for alert_id in list(rules):
                rule_list, threshold, _, expires_at = rules[alert_id]
                crossed = rule_list == at and low <= threshold <= low + width
                if (threshold, alert_id) in expected or (crossed and time_ms >= expires_at):
                    del rules[alert_id]
        elif kind in ("fold", "restore"):
            directory = index.fold()
            index = ThresholdIndex(state, directory) if kind == "restore" else index
        assert index.live_rules == len(rules)


def _cross(index: ThresholdIndex, at: int, low: int, high: int, time_ms: int) -> list[tuple[int, int]]:
    base = list_base(at, 4)
    hits = index.search(np.array([base + threshold_code(low)]), np.array([base + threshold_code(high)]))
    columns = zip(hits.place.tolist(), hits.start.tolist(), hits.end.tolist(), strict=True)
    parts = [Part(place, start, end, low, high) for place, start, end in columns]
    crossed = []
    for rule in index.crossed(parts, time_ms) if parts else ():
        index.kill(rule.place, rule.row)
        crossed.append((rule.threshold, rule.alert_id))
    return crossed


def test_folds_keep_runs_few_and_leave_nothing_of_what_they_merged() -> None:
    state = MemoryState()
    index = ThresholdIndex(state)
    for number in range(1, 2_001):
        index.install((list_base(number % 7, 0) + threshold_code(number), number, number, 1, 0, 0, 1))
        if number % 20 == 0:
            index.fold()
    assert index.live_rules == 2_000
    assert index.run_count <= 5
    named = {name.split("/")[1] for name in state.entries}
    assert len(named) == index.run_count


def test_a_run_that_is_mostly_dead_is_rewritten() -> None:
    state = MemoryState()
    index = ThresholdIndex(state)
    for number in range(1, 101):
        index.install((list_base(0, 0) + threshold_code(number), number, number, 1, 0, 0, 1))
    index.fold()
    for row in range(80):
        index.kill(0, row)
    index = ThresholdIndex(state, index.fold())
    (run,) = index._runs
    assert isinstance(run, RuleRun)
    assert (run.count, run.dead_count, run.lowest_id) == (20, 0, 81)
