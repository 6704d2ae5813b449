"""JSON ticks to price frames in one process, without a broker: what the gateway's core costs on one core."""

from __future__ import annotations

import random
import time
from typing import Any

from feeds.domain.entry import SourceEntry
from feeds.domain.feed_settings import FeedSettings
from feeds.domain.gateway_core import GatewayCore
from feeds.domain.recovered import RecoveredFeed
from feeds.sources.source import read_json

GOAL_TICKS_PER_SECOND = 60_000


def messages(count: int, symbols: int, seed: int) -> list[bytes]:
    """Ticks as a producer sends them, with sequences, to the millisecond."""
    rng = random.Random(seed)
    sequence = dict.fromkeys(range(symbols), 0)
    made = []
    for i in range(count):
        symbol = rng.randrange(symbols)
        sequence[symbol] += 1
        price = rng.randrange(100, 10_000_000)
        text = f'{{"feed":"bench","symbol":"SYM{symbol:05}","ts":{1_700_000_000_000 + i},'
        made.append(f'{text}"price":"{price // 100}.{price % 100:02}","seq":{sequence[symbol]}}}'.encode())
    return made


def measure_feeds_core(
    ticks: int = 300_000, symbols: int = 20_000, buckets: int = 16, batch: int = 4_096, seed: int = 1
) -> dict[str, Any]:
    """Parse, check, route and frame `ticks` messages in batches as the gateway polls them. Of one thread."""
    raws = messages(ticks, symbols, seed)
    core = GatewayCore(
        FeedSettings("bench", buckets, live=False),
        1,
        {f"SYM{symbol:05}": 2 for symbol in range(symbols)},
        RecoveredFeed(),
        wall_ms=0,
        monotonic_ms=0,
    )
    frames = frame_bytes = 0
    started, started_cpu = time.perf_counter(), time.thread_time()
    for first in range(0, ticks, batch):
        entries = [
            SourceEntry("ticks.v1/0", first + i, read_json(raw), raw)
            for i, raw in enumerate(raws[first : first + batch])
        ]
        for entry in entries:
            core.accept(entry, first)
        for frame in core.cut(first, catching_up=True, everything=True):
            frames += 1
            frame_bytes += len(frame.value)
    seconds, cpu_seconds = time.perf_counter() - started, time.thread_time() - started_cpu
    rate = ticks / cpu_seconds
    return {
        "bench": "feeds-core",
        "ticks_per_second": round(rate),  # of one core's time
        "ticks_per_wall_second": round(ticks / seconds),  # lower where other processes share the core
        "microseconds_per_tick": round(1e6 / rate, 2),
        "frames": frames,
        "ticks_per_frame": round(ticks / frames, 1),
        "bytes_per_tick": round(frame_bytes / ticks, 1),
        "rejected": core.rejected,
        "goal": GOAL_TICKS_PER_SECOND,
        "met": rate >= GOAL_TICKS_PER_SECOND,
        "setup": {"ticks": ticks, "symbols": symbols, "buckets": buckets, "batch": batch, "seed": seed},
    }
