"""Worlds by the thousand, the product broken on purpose, and the promise that a seed is a history."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from simulation.campaign import Campaign, hunt_one, is_own_fault, read_caught
from simulation.mutants import MUTANTS
from simulation.plan import Fault, FaultKind, Role
from simulation.plans import plan_of
from simulation.run import fails_alike, play, silence
from simulation.shorten import shorten

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 2_000
NAMES = [mutant.name for mutant in MUTANTS]


@pytest.fixture(autouse=True, scope="module")
def _silent() -> None:
    silence()


def test_no_seed_breaks_a_promise_and_everything_is_reached() -> None:
    told = io.StringIO()
    campaign = Campaign(range(1, SEEDS + 1), os.cpu_count(), Console(file=told, width=200))
    reached = campaign.play()
    assert campaign.failed == 0, told.getvalue()
    assert campaign.missing(reached) == []


def test_there_are_mutants_and_each_has_a_seed() -> None:
    assert len(NAMES) == len(set(NAMES)) >= 30
    assert sorted(read_caught()) == sorted(NAMES), (
        "run `./alerts simulate --mutants` and commit simulation/mutants/caught.json"
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_known_seed_finds_the_mutant(name: str) -> None:
    mutant, seed = next(mutant for mutant in MUTANTS if mutant.name == name), read_caught()[name]
    plan = mutant.plan_of(seed)
    assert play(plan).findings == ()
    with mutant.breaks():
        findings = play(plan).findings
    assert findings
    assert not is_own_fault(findings[0]), findings[0]


def test_a_mutant_that_nothing_breaks_is_reported_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = replace(MUTANTS[0], breaks=pytest.MonkeyPatch.context)
    monkeypatch.setattr("simulation.campaign.MUTANTS", (harmless,))
    monkeypatch.setattr("simulation.campaign.MAX_HUNT_SEEDS", 3)
    assert hunt_one(harmless.name, None) == (harmless.name, None, "")


def test_the_same_seed_is_the_same_history_byte_for_byte_in_another_process() -> None:
    """With another hash seed, so that no order of a set or of memory plays a part."""
    program = (
        "import json; from simulation.run import play_seeds;"
        "print(json.dumps([(r.digest, r.turns) for r in play_seeds(range(1, 13))]))"
    )
    runs = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hash_seed},
                capture_output=True, check=True,
            ).stdout
        )
        for hash_seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1]
    assert len({digest for digest, _ in runs[0]}) == 12


def test_a_failing_plan_is_shortened_to_what_it_takes() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "created-without-command")
    plan = plan_of(read_caught()[mutant.name])
    with mutant.breaks():
        findings = play(plan).findings
        short = shorten(plan, fails_alike(findings))
        assert play(short).findings
    assert [call.action for call in short.calls] == ["create"]
    assert (len(short.faults), len(short.words)) == (0, 0)
    assert len(short.messages) < len(plan.messages)


def test_a_fault_strikes_whom_it_is_meant_for() -> None:
    plan = replace(plan_of(4), faults=[Fault(30, FaultKind.KILL, Role.CONSUMER, 7)])
    result = play(plan)
    assert result.findings == ()
    assert result.reached["fault:kill:consumer"] == 1
    assert sum(count for name, count in result.reached.items() if name.startswith("fault:kill:")) == 1
