"""The production cores in process against the oracle, and against themselves under other cuts and resumes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stack.replay.core_engine import Disturbance, replay_in_process
from stack.replay.scenario import Scenario, parse_scenario, read_scenario
from tests.scenarios.answers import (
    CASES,
    STORED_SEEDS,
    differences,
    expected_of_case,
    generate,
    stored_answers,
)

# Many alerts early: only the first operations are played, again and again.
SMALL = ("--minutes", "20", "--alerts", "400", "--symbols", "3")
SMALL_OPERATIONS = 400


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_case_agrees_with_the_expected_answer(case: Path) -> None:
    assert differences(expected_of_case(case), replay_in_process(read_scenario(case))) == []


@pytest.mark.parametrize("seed", STORED_SEEDS)
def test_seed_agrees_with_the_stored_answer(seed: int) -> None:
    scenario = parse_scenario(f"seed {seed}", generate(seed).splitlines())
    assert differences(_stored()[seed], replay_in_process(scenario)) == []


@cache
def _stored():
    return stored_answers()


@cache
def _small(seed: int) -> Scenario:
    lines = generate(seed, *SMALL).splitlines()
    return parse_scenario(f"seed {seed}", lines[:SMALL_OPERATIONS])


@cache
def _undisturbed(seed: int):
    return replay_in_process(_small(seed))


chances = st.sampled_from([0.0, 0.01, 0.1, 1.0])


@given(st.integers(1, 12), st.integers(0, 2**32), chances, st.sampled_from([1, 2, 4, 7]))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
def test_where_frames_are_cut_and_how_many_buckets_there_are_changes_nothing(
    seed: int, cut_seed: int, chance: float, buckets: int
) -> None:
    disturbance = Disturbance(cut_seed, cut_chance=chance)
    assert replay_in_process(_small(seed), buckets, disturbance) == _undisturbed(seed)


@given(st.integers(1, 12), st.integers(0, 2**32), st.sampled_from([0.005, 0.02, 0.1]))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
def test_stopping_a_job_anywhere_and_resuming_it_from_a_checkpoint_changes_nothing(
    seed: int, resume_seed: int, chance: float
) -> None:
    disturbance = Disturbance(resume_seed, cut_chance=0.1, resume_chance=chance, checkpoint_chance=chance)
    assert replay_in_process(_small(seed), 2, disturbance) == _undisturbed(seed)
