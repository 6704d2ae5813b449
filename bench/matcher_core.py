"""The matcher's core on one core of the machine: search rate, installs, memory a rule, rows read a candidate."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import psutil
from numpy.typing import NDArray

from contracts import frames_pb2 as pb
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.state import MemoryState

COMMANDS_PER_RECORD: Final = 1_000
ROUND_BPS: Final = (100, 200, 300, 500, 1_000, 1_500, 2_000)  # people's thresholds cluster on these
ROUND_SHARE: Final = 0.7
COUNTED: Final = frozenset({"candidates", "rows_read", "page_bytes_read"})
NOON_MS: Final = 1_767_610_800_000


@dataclass(frozen=True)
class MatcherCoreLoad:
    """Of what the logs are made: `shards` buckets of a feed, and of its most wanted symbol `hot_shards` of its own.

    `symbols`: of one bucket. `frames`: of metrics, for each bucket and each hot shard.
    """

    rules: int = 10_000_000
    shards: int = 16
    symbols: int = 1_250
    hot_share: float = 0.2
    hot_shards: int = 4
    ticks_per_frame: int = 256
    frames: int = 50
    storm_rules: int = 1_000_000
    seed: int = 7


@dataclass(frozen=True)
class ShardLoad:
    """One shard's part of it."""

    shard: str
    rules: int
    symbols: int
    ticks_per_frame: int
    frames: int


GOALS: Final = {
    "bytes_per_rule": 16,
    "rows_per_candidate": 1.1,
    "rules_installed_per_second": 50_000,
    "core_intervals_per_second": 2_000_000,
}


class _SizedState(MemoryState):
    """Knows its own size."""

    def size_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self.entries.items())


def _rule_records(load: ShardLoad, rng: np.random.Generator) -> Iterator[bytes]:
    count = load.rules
    symbol, window = rng.integers(0, load.symbols, count), rng.integers(0, 6, count)
    is_round = rng.random(count) < ROUND_SHARE
    bps = np.where(is_round, rng.choice(ROUND_BPS, count), rng.integers(10, 3_000, count))
    side = rng.choice([pb.UP, pb.DOWN, pb.EITHER, pb.ABOVE, pb.BELOW], count, p=[0.3, 0.25, 0.15, 0.15, 0.15])
    target = np.where(is_round, rng.integers(50, 150, count) * 100, rng.integers(5_000, 15_000, count))
    for start in range(0, count, COMMANDS_PER_RECORD):
        frame = pb.CommandFrame(shard=load.shard, epoch=1, first_number=start + 1)
        for n in range(start, min(start + COMMANDS_PER_RECORD, count)):
            rule = frame.commands.add().create.rule
            rule.alert_id, rule.version, rule.symbol = n + 1, 1, f"S{symbol[n]:05d}"
            rule.direction = int(side[n])
            is_price = rule.direction in (pb.ABOVE, pb.BELOW)
            rule.kind = pb.PRICE if is_price else pb.CHANGE
            rule.window = 0 if is_price else int(window[n])
            rule.threshold = int(target[n] if is_price else bps[n])
            rule.created_at_ms, rule.expires_at_ms = NOON_MS, NOON_MS + 30 * 86_400_000
        yield pb.ShardLogRecord(commands=frame).SerializeToString()


def _walk(load: ShardLoad, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Floors of changes and prices of all ticks: each symbol's change walks by about a bps or two a tick."""
    ticks = load.ticks_per_frame * load.frames
    steps = rng.normal(0, 1.5, (ticks, 6))
    return np.rint(steps).astype(np.int64), rng.integers(-2, 3, ticks)


def _metric_records(load: ShardLoad, rng: np.random.Generator) -> tuple[list[bytes], int]:
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
        frame = pb.MetricFrame(shard=load.shard, epoch=1, first_number=number, count=rows)
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


def _feed(core: MatcherCore, records: Iterable[bytes]) -> float:
    """CPU seconds of the core alone for records that are made meanwhile."""
    seconds = 0.0
    for record in records:
        started = time.process_time()
        for _ in core.process(record):
            pass
        seconds += time.process_time() - started
    return seconds


def _shards_of(load: MatcherCoreLoad) -> list[ShardLoad]:
    hot = round(load.rules * load.hot_share)
    buckets = [
        ShardLoad(f"bench/{n}", (load.rules - hot) // load.shards, load.symbols, load.ticks_per_frame, load.frames)
        for n in range(load.shards)
    ]
    hot_shards = [
        ShardLoad(f"bench/HOT/{load.hot_shards}.{n}", hot // load.hot_shards, 1, 1, load.frames)
        for n in range(load.hot_shards)
    ]
    return buckets + hot_shards


def measure_matcher_core(load: MatcherCoreLoad | None = None) -> dict[str, Any]:
    """Install rules, make every core again from its state, match, and one storm; progress on stderr.

    Rates are per CPU second of one core. `bytes_per_rule` is the growth of resident memory by all cores that are made
    from their states; the states themselves, which RocksDB would hold, were in memory before.
    """
    load = load or MatcherCoreLoad()
    rng = np.random.default_rng(load.seed)
    shards = _shards_of(load)
    states = {shard.shard: _SizedState() for shard in shards}
    installed, install_seconds = 0, 0.0
    for shard in shards:
        install_seconds += _feed(MatcherCore(states[shard.shard], shard.shard, 1), _rule_records(shard, rng))
        installed += shard.rules
        _say(f"{installed:,} of {load.rules:,} rules, {installed / install_seconds:,.0f}/s")
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    started = time.process_time()
    cores = {shard.shard: MatcherCore(states[shard.shard], shard.shard, 1) for shard in shards}
    restore_seconds = time.process_time() - started
    gc.collect()
    grown = process.memory_info().rss - before
    _say(f"restored in {restore_seconds:.1f} s, {grown / installed:.1f} bytes a rule")
    intervals, match_seconds = 0, 0.0
    for shard in shards:
        records, asked = _metric_records(shard, rng)
        match_seconds += _feed(cores[shard.shard], records)
        intervals += asked
        _say(f"{shard.shard}: {intervals / match_seconds:,.0f} intervals/s so far")
    figures: Counter[str] = Counter()
    for core in cores.values():
        figures.update({name: count for name, count in core.metrics().items() if name in COUNTED})
    candidates = max(figures["candidates"], 1)
    measured: dict[str, Any] = {
        "rules": installed,
        "bytes_per_rule": round(grown / installed, 2),
        "state_bytes_per_rule": round(sum(state.size_bytes() for state in states.values()) / installed, 1),
        "rules_installed_per_second": round(installed / install_seconds),
        "restore_seconds": round(restore_seconds, 3),
        "core_intervals_per_second": round(intervals / match_seconds),
        "candidates": figures["candidates"],
        "rows_per_candidate": round(figures["rows_read"] / candidates, 3),
        "page_bytes_per_candidate": round(figures["page_bytes_read"] / candidates),
    }
    del cores, states
    gc.collect()
    _say(f"a frame that crosses {load.storm_rules:,} rules")
    measured |= {"storm": measure_storm(load.storm_rules)}
    met = {name: _is_met(name, measured[name], goal) for name, goal in GOALS.items()}
    return {**measured, "goal": GOALS, "met": all(met.values()), "met_each": met, "setup": _setup(load)}


def _is_met(name: str, value: float, goal: float) -> bool:
    return value >= goal if name.endswith("_per_second") else value <= goal


def measure_storm(rules: int) -> dict[str, Any]:
    """One tick that crosses every rule of a shard: the rate of candidates, memory at each frame above that before.

    `longest_gap_ms`: between two frames of candidates. It is no bound on other keys: the job's task turns to them only
    behind the last one. Memory is not read while the record's journal entry is built, so it is no peak either.
    """
    state, shard = MemoryState(), ShardLoad("bench/storm", rules, 1, 1, 1)
    core = MatcherCore(state, shard.shard, 1)
    _feed(core, _up_rules(shard))
    core = MatcherCore(state, shard.shard, 1)
    gc.collect()
    process = psutil.Process()
    before = most = process.memory_info().rss
    longest = bytes_out = 0.0
    started = last = time.process_time()
    for output in core.process(_leap(shard)):
        now = time.process_time()
        longest, last = max(longest, now - last), now
        bytes_out += len(output.value)
        most = max(most, process.memory_info().rss)
    now = time.process_time()
    longest = max(longest, now - last)
    found = core.metrics()["candidates"]
    return {
        "rules": rules,
        "candidates": found,
        "candidates_per_second": round(found / (now - started)),
        "memory_at_frames_bytes": most - before,
        "candidate_bytes": round(bytes_out / max(found, 1), 1),
        "longest_gap_ms": round(longest * 1_000, 1),
    }


def _up_rules(shard: ShardLoad) -> Iterator[bytes]:
    for start in range(0, shard.rules, COMMANDS_PER_RECORD):
        frame = pb.CommandFrame(shard=shard.shard, epoch=1, first_number=start + 1)
        for n in range(start, min(start + COMMANDS_PER_RECORD, shard.rules)):
            rule = frame.commands.add().create.rule
            rule.alert_id, rule.version, rule.symbol, rule.direction = n + 1, 1, "S00000", pb.UP
            rule.kind, rule.window, rule.threshold = pb.CHANGE, 1, ROUND_BPS[n % len(ROUND_BPS)]
            rule.created_at_ms, rule.expires_at_ms = NOON_MS, NOON_MS + 30 * 86_400_000
        yield pb.ShardLogRecord(commands=frame).SerializeToString()


def _leap(shard: ShardLoad) -> bytes:
    """From no change to 30 %."""
    one = np.ones(1, "<i8")
    frame = pb.MetricFrame(shard=shard.shard, epoch=1, first_number=1, count=1, symbols=["S00000"])
    frame.symbol_index = np.zeros(1, "<u2").tobytes()
    frame.event_time_ms = frame.previous_event_time_ms = (one * (NOON_MS + 1)).tobytes()
    frame.price_scaled = frame.previous_price_scaled = (one * 13_000).tobytes()
    frame.sequence = frame.session = one.tobytes()
    frame.change_row, frame.change_window = np.zeros(1, "<u4").tobytes(), np.ones(1, "u1").tobytes()
    frame.previous_floor_bps = frame.previous_negated_floor_bps = (one * 0).tobytes()
    frame.current_floor_bps, frame.current_negated_floor_bps = (one * 3_000).tobytes(), (one * -3_000).tobytes()
    frame.reference_time_ms = frame.reference_price_scaled = one.tobytes()
    record: bytes = pb.ShardLogRecord(metrics=frame).SerializeToString()
    return record


def _setup(load: MatcherCoreLoad) -> str:
    return (
        f"production cores in one process on one core, states in memory in RocksDB's place; {load.shards} buckets of"
        f" {load.symbols} symbols, {load.hot_share:.0%} of all rules on one symbol in {load.hot_shards} shards,"
        f" {ROUND_SHARE:.0%} of thresholds on round numbers,"
        f" {load.ticks_per_frame} ticks a frame, seven intervals a tick"
    )


def _say(line: str) -> None:
    sys.stderr.write(f"bench matcher: {line}\n")
    sys.stderr.flush()
