"""A job adds only what the configuration leaves open, and refuses modes that lose state or count it twice."""

from __future__ import annotations

import pytest

from flink_jobs.arguments import parse_arguments
from flink_jobs.driver import DEFAULTS, CheckpointModeError, ModeError, settings_beside

ARGUMENTS = parse_arguments("rolling-metrics", ["--bootstrap", "127.0.0.1:9092", "--epoch", "1"])


def test_an_empty_configuration_gets_every_default() -> None:
    added = settings_beside({}, ARGUMENTS)
    interval = {"execution.checkpointing.interval": "5000 ms", "python.execution-mode": "process"}
    assert added == DEFAULTS | interval


def test_what_is_configured_stands() -> None:
    found = {"python.fn-execution.bundle.time": "10", "execution.checkpointing.interval": "1 min"}
    assert settings_beside(found, ARGUMENTS).keys().isdisjoint(found)


def test_thread_mode_is_refused() -> None:
    with pytest.raises(ModeError, match="a savepoint would silently restore empty") as refused:
        settings_beside({"python.execution-mode": "thread"}, ARGUMENTS)
    assert refused.value.mode == "thread"


def test_checkpoints_that_count_twice_are_refused() -> None:
    with pytest.raises(CheckpointModeError, match="needs EXACTLY_ONCE"):
        settings_beside({"execution.checkpointing.mode": "AT_LEAST_ONCE"}, ARGUMENTS)
