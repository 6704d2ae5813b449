"""The rolling core on one core of the machine, and its block writer: no Flink, no broker, no RocksDB."""

from __future__ import annotations

import cProfile
import csv
import pstats
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.rolling_load import FEED, START_MS, BucketFrames, RollingLoad
from flink_jobs.domain.history import BLOCK_TICKS
from flink_jobs.domain.history_block import Block, encode_block, key_of
from flink_jobs.domain.rolling import RollingCore
from flink_jobs.domain.state import MemoryState

PROFILED_LINES: Final = 30
_SECONDS_A_YEAR: Final = 365 * 86_400


def measure_rolling_core(load: RollingLoad, buckets: int = 4, *, profile: bool = False) -> dict[str, Any]:
    """Rates are ticks per CPU second of one thread, over the first `buckets` buckets in turn, as a worker takes them.

    The history is what the load says for every symbol; so are the phases. `profile`: a table on stderr, and rates that
    the profiler has slowed.
    """
    makers = [BucketFrames(load, bucket) for bucket in range(min(buckets, load.buckets))]
    states = [MemoryState() for _ in makers]
    cores = [RollingCore(state, FEED, maker.bucket, 1) for state, maker in zip(states, makers, strict=True)]
    history_seconds, history_ticks, _ = _feed(cores, [maker.history() for maker in makers])
    profiler = cProfile.Profile() if profile else None
    rates, first_minute = {}, 0
    for name, phase in zip(("large", "small"), load.phases(), strict=True):
        made = [list(maker.phase(first_minute, phase)) for maker in makers]
        if profiler:
            profiler.enable()
        seconds, ticks, frames = _feed(cores, [iter(frames) for frames in made])
        if profiler:
            profiler.disable()
        first_minute += phase.minutes
        rates[name] = {
            "ticks_per_frame": round(ticks / frames, 1), "ticks_per_second": round(ticks / seconds),
            "microseconds_per_tick": round(1e6 * seconds / ticks, 2),
            "microseconds_per_frame": round(1e6 * seconds / frames, 1),
        }  # fmt: skip
    if profiler:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(PROFILED_LINES)
    return {
        **rates,
        "history_ticks_per_second": round(history_ticks / history_seconds) if history_ticks else None,
        "late": sum(core.counts.late for core in cores),
        "buckets": len(cores),
    }


def _feed(cores: list[RollingCore], frames: list[Iterator[tuple[bytes, int, int]]]) -> tuple[float, int, int]:
    """CPU seconds in the cores, ticks, frames with ticks: the buckets take turns, frame by frame."""
    seconds, ticks, count = 0.0, 0, 0
    running = list(zip(cores, frames, strict=True))
    while running:
        still = []
        for core, rest in running:
            following = next(rest, None)
            if following is None:
                continue
            still.append((core, rest))
            began = time.thread_time()
            core.process(following[0])
            seconds += time.thread_time() - began
            ticks += following[2]
            count += 1 if following[2] else 0
        running = still
    return seconds, ticks, count


# -- bytes a tick
Ticks = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def poisson_ticks(symbols: int, ticks: int, seed: int) -> Ticks:
    """(symbol, time, price): each symbol about once a second, volatility 20 % a year at 100.00."""
    rng, each = np.random.default_rng(seed), max(1, ticks // symbols)
    times = START_MS + np.cumsum(rng.exponential(1_000.0, (symbols, each)), axis=1).astype(np.int64)
    return np.repeat(np.arange(symbols), each), times.ravel(), _walk(rng, symbols, each)


def grid_ticks(symbols: int, ticks: int, seed: int) -> Ticks:
    """The same on the exact second."""
    rng, each = np.random.default_rng(seed), max(1, ticks // symbols)
    times = START_MS + np.tile(np.arange(each, dtype=np.int64) * 1_000, symbols)
    return np.repeat(np.arange(symbols), each), times, _walk(rng, symbols, each)


def _walk(rng: np.random.Generator, symbols: int, each: int) -> NDArray[np.int64]:
    steps = rng.normal(0.0, 0.2 / _SECONDS_A_YEAR**0.5, (symbols, each))
    prices: NDArray[np.int64] = np.rint(10_000 * np.exp(np.cumsum(steps, axis=1))).astype(np.int64).ravel()
    return prices


def minute_file_ticks(path: Path) -> Ticks:
    """The closes of a CSV file of minutes (Date as month/day/year hour:minute, Close), one symbol."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    moments = [datetime.strptime(row["Date"], "%m/%d/%Y %H:%M").replace(tzinfo=UTC) for row in rows]
    times = np.array([round(moment.timestamp()) * 1_000 for moment in moments], np.int64)
    prices = np.array([round(Decimal(row["Close"]) * 100) for row in rows], np.int64)
    return np.zeros(len(rows), np.int64), times, prices


def bytes_per_tick(
    symbol: NDArray[np.int64], time_ms: NDArray[np.int64], price: NDArray[np.int64], block_ticks: int = BLOCK_TICKS
) -> float:
    """Of the production block writer, over whole blocks in order of time; a file shorter than a block is one block."""
    arrival = np.argsort(time_ms, kind="stable")
    symbol, time_ms, price = symbol[arrival], time_ms[arrival], price[arrival]
    size, blocks = min(block_ticks, len(symbol)), max(1, len(symbol) // block_ticks)
    total = 0
    for begin in range(0, blocks * size, size):
        keys = key_of(symbol[begin : begin + size], time_ms[begin : begin + size])
        order = np.argsort(keys, kind="stable")
        total += len(encode_block(Block.of(keys[order], price[begin : begin + size][order])))
    return total / (blocks * size)


def measure_bytes_per_tick(symbols: int, sp500: Path | None, seed: int = 7) -> dict[str, float | None]:
    """`symbols`: of one bucket. sp500: the minute file; None or absent: not measured."""
    ticks = 2 * BLOCK_TICKS
    return {
        "poisson": round(bytes_per_tick(*poisson_ticks(symbols, ticks, seed)), 3),
        "grid": round(bytes_per_tick(*grid_ticks(symbols, ticks, seed)), 3),
        "sp500": round(bytes_per_tick(*minute_file_ticks(sp500)), 3) if sp500 and sp500.is_file() else None,
    }
