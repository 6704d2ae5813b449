"""Scenarios through the real API, broker, Flink jobs and database, against the oracle."""

from __future__ import annotations

import pytest

from stack.embedded import EmbeddedStack
from stack.errors import StackError
from stack.replay.scenario import parse_scenario, read_scenario
from stack.replay.stack_engine import replay_through_stack
from tests.scenarios.answers import CASES, answers, differences, expected_of_case

SEEDS = range(1, 5)
SMALL = ("--alerts", "15", "--minutes", "10")


def test_every_case_and_some_seeds_agree_with_the_oracle(embedded_stack: EmbeddedStack, tmp_path) -> None:
    asked = list(answers(SEEDS, tmp_path, *SMALL))
    scenarios = [*map(read_scenario, CASES), *(read_scenario(path) for _, path, _ in asked)]
    expected = [*map(expected_of_case, CASES), *(rows for _, _, rows in asked)]

    results = replay_through_stack(scenarios, stack=embedded_stack)

    wrong = {
        scenario.name: found
        for scenario, wanted, rows in zip(scenarios, expected, results, strict=True)
        if (found := differences(wanted, rows))
    }
    assert wrong == {}
    # nothing of it is left
    assert [environment.name for environment in embedded_stack.environments() if "replay" in environment.name] == []


def test_a_scenario_that_the_api_refuses_says_why(embedded_stack: EmbeddedStack) -> None:
    scenario = parse_scenario(
        "refused",
        [
            b'{"op": "instrument", "symbol": "AAA", "decimals": 2}',
            b'{"op": "create", "id": "a", "user": "u", "symbol": "AAA", "kind": "price", "direction": "ABOVE",'
            b' "target": "1.005", "at": 1767610800000}',
        ],
    )
    with pytest.raises(StackError, match=r"refuses POST /v1/alerts with 422.*2 decimals"):
        replay_through_stack([scenario], stack=embedded_stack)
