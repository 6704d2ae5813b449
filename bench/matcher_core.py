"""The matcher's core on one core of the machine: search rate, installs, memory a rule, rows read a candidate."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import Final

import numpy as np
import psutil
from numpy.typing import NDArray

from contracts import frames_pb2 as pb
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.state import MemoryState

SHARD: Final = "bench/0"
COMMANDS_PER_RECORD: Final = 1_000
ROUND_BPS: Final = (100, 200, 300, 500, 1_000, 1_500, 2_000)  # people's thresholds cluster on these
ROUND_SHARE: Final = 0.7
NOON_MS: Final = 1_767_610_800_000


@dataclass(frozen=True)
class MatcherCoreLoad:
    """Of what the log is made. `symbols` are one shard's: a bucket of a feed of 16 times as many."""

    rules: int = 1_000_000
    symbols: int = 1_250
    ticks_per_frame: int = 256
    frames: int = 400
    seed: int = 7


class _SizedState(MemoryState):
    """Knows its own size."""

    def size_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self.entries.items())


def _rule_records(load: MatcherCoreLoad, rng: np.random.Generator) -> list[bytes]:
    count = load.rules
    symbol, window = rng.integers(0, load.symbols, count), rng.integers(0, 6, count)
    is_round = rng.random(count) < ROUND_SHARE
    bps = np.where(is_round, rng.choice(ROUND_BPS, count), rng.integers(10, 3_000, count))
    side = rng.choice([pb.UP, pb.DOWN, pb.EITHER, pb.ABOVE, pb.BELOW], count, p=[0.3, 0.25, 0.15, 0.15, 0.15])
    target = np.where(is_round, rng.integers(50, 150, count) * 100, rng.integers(5_000, 15_000, count))
    records = []
    for start in range(0, count, COMMANDS_PER_RECORD):
        frame = pb.CommandFrame(shard=SHARD, epoch=1, first_number=start + 1)
        for n in range(start, min(start + COMMANDS_PER_RECORD, count)):
            rule = frame.commands.add().create.rule
            rule.alert_id, rule.version, rule.symbol = n + 1, 1, f"S{symbol[n]:05d}"
            rule.direction = int(side[n])
            is_price = rule.direction in (pb.ABOVE, pb.BELOW)
            rule.kind = pb.PRICE if is_price else pb.CHANGE
            rule.window = 0 if is_price else int(window[n])
            rule.threshold = int(target[n] if is_price else bps[n])
            rule.created_at_ms, rule.expires_at_ms = NOON_MS, NOON_MS + 30 * 86_400_000
        records.append(pb.ShardLogRecord(commands=frame).SerializeToString())
    return records


def _walk(load: MatcherCoreLoad, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Floors of changes and prices of all ticks: each symbol's change walks by about a bps or two a tick."""
    ticks = load.ticks_per_frame * load.frames
    steps = rng.normal(0, 1.5, (ticks, 6))
    return np.rint(steps).astype(np.int64), rng.integers(-2, 3, ticks)


def _metric_records(load: MatcherCoreLoad, rng: np.random.Generator) -> tuple[list[bytes], int]:
    """(records, intervals in them): six windows and the price of every tick, also where nothing can be crossed."""
    steps, price_steps = _walk(load, rng)
    change = rng.integers(-1_500, 1_500, (load.symbols, 6))
    price = rng.integers(6_000, 14_000, load.symbols)
    names = [f"S{n:05d}" for n in range(load.symbols)]
    records, number, now_ms = [], 1, NOON_MS + 1
    for at in range(load.frames):
        rows = load.ticks_per_frame
        symbols = rng.permutation(load.symbols)[:rows] if rows <= load.symbols else np.arange(rows) % load.symbols
        slot = slice(at * rows, at * rows + rows)
        previous, previous_price = change[symbols].copy(), price[symbols].copy()
        change[symbols] += steps[slot]
        price[symbols] = np.maximum(price[symbols] + price_steps[slot], 1)
        current = change[symbols]
        time_ms = np.full(rows, now_ms)
        frame = pb.MetricFrame(shard=SHARD, epoch=1, first_number=number, count=rows)
        used, index = np.unique(symbols, return_inverse=True)
        frame.symbols.extend(names[n] for n in used)
        frame.symbol_index = index.astype("<u2").tobytes()
        frame.event_time_ms = frame.previous_event_time_ms = time_ms.astype("<i8").tobytes()
        frame.price_scaled = price[symbols].astype("<i8").tobytes()
        frame.previous_price_scaled = previous_price.astype("<i8").tobytes()
        frame.sequence = frame.session = np.ones(rows, "<i8").tobytes()
        frame.change_row = np.repeat(np.arange(rows), 6).astype("<u4").tobytes()
        frame.change_window = np.tile(np.arange(6), rows).astype("u1").tobytes()
        frame.previous_floor_bps = previous.astype("<i8").tobytes()
        frame.previous_negated_floor_bps = (-previous).astype("<i8").tobytes()
        frame.current_floor_bps = current.astype("<i8").tobytes()
        frame.current_negated_floor_bps = (-current).astype("<i8").tobytes()
        frame.reference_time_ms = frame.reference_price_scaled = np.ones(rows * 6, "<i8").tobytes()
        records.append(pb.ShardLogRecord(metrics=frame).SerializeToString())
        number, now_ms = number + rows, now_ms + 50
    return records, load.frames * load.ticks_per_frame * 7


def _feed(core: MatcherCore, records: list[bytes]) -> float:
    """CPU seconds of this process for a list of records."""
    started = time.process_time()
    for record in records:
        for _ in core.process(record):
            pass
    return time.process_time() - started


def measure_matcher_core(load: MatcherCoreLoad | None = None) -> dict[str, float]:
    """Install rules, restore, match; rates are per CPU second of one core.

    `bytes_per_rule` is the growth of resident memory by a core that is made from the state; the state itself, which
    RocksDB would hold, was in memory before.
    """
    load = load or MatcherCoreLoad()
    rng = np.random.default_rng(load.seed)
    state = _SizedState()
    core = MatcherCore(state, SHARD, 1)
    install_seconds = _feed(core, _rule_records(load, rng))
    del core
    metric_records, intervals = _metric_records(load, rng)
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    started = time.process_time()
    core = MatcherCore(state, SHARD, 1)
    restore_seconds = time.process_time() - started
    gc.collect()
    grown = process.memory_info().rss - before
    match_seconds = _feed(core, metric_records)
    figures = core.metrics()
    candidates = max(figures["candidates"], 1)
    return {
        "rules": load.rules,
        "rules_installed_per_second": round(load.rules / install_seconds),
        "restore_seconds": round(restore_seconds, 3),
        "bytes_per_rule": round(grown / load.rules, 2),
        "state_bytes_per_rule": round(state.size_bytes() / load.rules, 1),
        "core_intervals_per_second": round(intervals / match_seconds),
        "frame_microseconds": round(match_seconds / load.frames * 1e6),
        "candidates": figures["candidates"],
        "rows_per_candidate": round(figures["rows_read"] / candidates, 3),
        "page_bytes_per_candidate": round(figures["page_bytes_read"] / candidates),
        "hits": figures["hits"],
        "runs": figures["runs"],
    }
