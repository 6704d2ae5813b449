"""Every evaluation of the oracle, in its order, against the core's rows: exact, for all cases and many seeds."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import pytest

from contracts.keys import bucket_shard
from contracts.vocabulary import WINDOW_MS, WINDOWS
from flink_jobs.domain.rolling_changes import UNDEFINED
from flink_jobs.domain.state import MemoryState
from tests.flink_jobs.domain.price_entries import BUCKET, FEED, core_on, cut, entries_of, shard_entries
from tests.scenarios.oracle import Oracle

SCENARIOS = Path(__file__).parents[2] / "scenarios"
CASES = sorted(p for p in (SCENARIOS / "cases").glob("*.jsonl") if not p.name.endswith(".expected.jsonl"))


class WatchedOracle(Oracle):
    """The oracle, writing down what it evaluates as the core's rows would say it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[Any, ...]] = []

    def evaluate(self, name: str, state: Any, tick: Any) -> None:
        scale = 10**state.decimals
        before = state.emitted[-1] if state.emitted else None
        if state.suppressed or state.price_baseline:
            before = None
        quiet, previous = state.suppressed, dict(state.previous)
        super().evaluate(name, state, tick)
        changes = []
        for window in WINDOWS:
            was, now = previous[window], state.previous[window]
            if quiet or was is None or now is None:
                continue
            floors = (floor(was), floor(-was), floor(now), floor(-now))
            if floors[0] < floors[2] or floors[1] < floors[3]:
                at = tick.ts - WINDOW_MS[window]
                reference = next(t for t in reversed(state.emitted) if t.ts <= at)
                changes.append((window, *floors, reference.ts, int(reference.price * scale)))
        self.rows.append((
            name, tick.ts, int(tick.price * scale), tick.seq or 0, state.session,
            int(before.price * scale) if before else 0, before.ts if before else 0, tuple(changes),
        ))  # fmt: skip


def watched(lines: list[str]) -> WatchedOracle:
    oracle = WatchedOracle()
    for line in lines:
        op = json.loads(line) if line.strip() and not line.startswith("#") else {"op": "create"}
        if op["op"] not in ("create", "cancel"):
            oracle.apply(op)
    oracle.finish()
    return oracle


def generated(seed: int, *options: str) -> list[str]:
    command = [sys.executable, str(SCENARIOS / "generate.py"), str(seed), "--alerts", "0", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def check(lines: list[str], sizes: list[int], **options: Any) -> None:
    oracle, core = watched(lines), core_on(MemoryState(), **options)
    outputs = [core.process(frame) for frame in cut(entries_of(lines), sizes)]
    rows = [e[3:] for e in shard_entries(outputs).get(bucket_shard(FEED, BUCKET), []) if e[2] == "tick"]
    assert rows == oracle.rows
    counts = core.counts
    assert oracle.counts == {"rejected": counts.rejected, "duplicate": counts.duplicate, "late": counts.late}


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
@pytest.mark.parametrize("size", [1, 7, 64])
def test_case(case: Path, size: int) -> None:
    check(case.read_text().splitlines(), [size])


@pytest.mark.parametrize("seed", range(60))
def test_generated(seed: int) -> None:
    """Small ones; every third seals tiny blocks so that cursors walk sealed history."""
    lines = generated(seed, "--minutes", "6", "--symbols", "3")
    check(lines[:1_000], [64, 1, 16, 313], block_ticks=100 if seed % 3 == 0 else 20_000)


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_every_metric_after_every_tick(seed: int) -> None:
    """The kept floors, also where no row says them: defined or not, changed or not."""
    lines = generated(seed, "--minutes", "4", "--symbols", "2")[:700]
    oracle, core = Oracle(), core_on(MemoryState(), block_ticks=50)
    for line in lines:
        op = json.loads(line)
        oracle.apply(op)
        for frame in cut(entries_of(_with_instruments(lines, line))[-2:-1], [1]):
            core.process(frame)
        order, changes = core._memory.order, core._memory.changes
        for name, state in oracle.symbols.items():
            slot = order.slot_of[name]
            expected = [state.previous[w] for w in WINDOWS]
            assert changes.previous_floor[slot].tolist() == [_floor(p) for p in expected]
            assert changes.previous_negated_floor[slot].tolist() == [
                _floor(None if p is None else -p) for p in expected
            ]


def _with_instruments(lines: list[str], line: str) -> list[str]:
    """A line with the instruments that its price text needs, itself last."""
    return [*(other for other in lines if '"instrument"' in other), line]


def _floor(change: Fraction | None) -> int:
    return UNDEFINED if change is None else floor(change)
