"""Price frames to Parquet in one process, without a broker: what the archive costs on one core, and a tick on disk.

`python -m bench.archive_writer` prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from contracts.frames_pb2 import PriceFrame
from contracts.keys import bucket_of, bucket_shard
from feeds.archive.file_name import bucket_folder, list_files, split_superseded
from feeds.archive.latest_prices import LatestPrice
from feeds.archive.reader import ArchiveReader
from feeds.archive.writer import ArchiveWriter
from ports.clock import SystemClock
from ports.memory_log import MemoryLog

FEED: Final = "bench"
BUCKETS: Final = 16
TOPIC: Final = "prices.v1"


class _Nowhere:
    """LatestPriceStore that counts."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, prices: Sequence[LatestPrice]) -> None:
        self.rows += len(prices)

    def close(self) -> None: ...


def fill(log: MemoryLog, ticks: int, symbols: int, frame_rows: int, seed: int = 1) -> None:
    """Each symbol at Poisson times of one a second, volatility 20 % a year at 100.00, in frames of its bucket."""
    random = np.random.default_rng(seed)
    names = [f"SYM{number:05}" for number in range(symbols)]
    seconds = ticks / symbols
    number = random.integers(0, symbols, ticks)
    times = 1_767_607_200_000 + np.sort(random.uniform(0, seconds * 1000, ticks)).astype(np.int64)
    bucket = np.array([bucket_of(name, BUCKETS) for name in names])[number]
    order = np.argsort(number, kind="stable")
    steps = random.normal(0, 10_000 * 0.2 / (365 * 86_400) ** 0.5, ticks)
    walk, firsts = np.cumsum(steps), np.flatnonzero(np.append(True, np.diff(number[order]) != 0))
    lengths = np.diff(np.append(firsts, ticks))
    prices, sequence = np.empty(ticks, np.int64), np.empty(ticks, np.int64)
    prices[order] = 10_000 + np.round(walk - np.repeat(walk[firsts], lengths)).astype(np.int64)
    sequence[order] = np.arange(ticks) - np.repeat(firsts, lengths) + 1
    records = []
    for of_bucket in range(BUCKETS):
        rows = np.flatnonzero(bucket == of_bucket)
        key = bucket_shard(FEED, of_bucket).encode()
        for frame_number, begin in enumerate(range(0, len(rows), frame_rows)):
            part = rows[begin : begin + frame_rows]
            used, index = np.unique(number[part], return_inverse=True)
            frame = PriceFrame(
                feed=FEED, bucket=of_bucket, lease=1, frame_number=frame_number + 1, symbols=[names[n] for n in used],
                symbol_index=index.astype("<u2").tobytes(), event_time_ms=times[part].tobytes(),
                price_scaled=prices[part].tobytes(), sequence=sequence[part].tobytes(),
                session=np.ones(len(part), np.int64).tobytes(),
            )  # fmt: skip
            records.append((TOPIC, key, frame.SerializeToString(), int(times[part[-1]])))
    log.add(records)


def measure(ticks: int, symbols: int, frame_rows: int, folder: Path) -> dict[str, Any]:
    """Write all of it, flush, merge what should be, and read one symbol."""
    log, latest = MemoryLog({TOPIC: 4}), _Nowhere()
    fill(log, ticks, symbols, frame_rows)
    writer = ArchiveWriter(
        folder=folder, topic=TOPIC, reader=log.reader(), latest=latest, clock=SystemClock(), roll_ms=0
    )
    started, started_cpu = time.perf_counter(), time.process_time()
    while writer.step():
        pass
    writer.flush()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    reader = ArchiveReader(folder)
    began = time.perf_counter()
    found = len(reader.ticks(FEED, BUCKETS, "SYM00000", 0, 1 << 50))
    read_ms = (time.perf_counter() - began) * 1000
    files = [(f, bucket) for bucket in range(BUCKETS) for f in list_files(bucket_folder(folder, FEED, bucket))]
    assert not split_superseded([file for file, bucket in files if bucket == 0])[1]
    size = sum((bucket_folder(folder, FEED, bucket) / file.name).stat().st_size for file, bucket in files)
    writer.close()
    return {
        "ticks_per_second": round(ticks / seconds), "ticks_per_cpu_second": round(ticks / cpu_seconds),
        "bytes_per_tick": round(size / ticks, 2), "files": len(files), "latest_rows": latest.rows,
        "one_symbol": {"ticks": found, "read_ms": round(read_ms, 1)},
        "setup": {"ticks": ticks, "symbols": symbols, "ticks_per_frame": frame_rows},
    }  # fmt: skip


def main() -> None:
    for ticks, symbols, frame_rows in ((4_000_000, 20_000, 64), (2_000_000, 20_000, 16), (4_000_000, 500, 64)):
        with tempfile.TemporaryDirectory() as name:
            found = measure(ticks, symbols, frame_rows, Path(name))
            sys.stdout.write(json.dumps({"bench": "archive", **found}) + "\n")


if __name__ == "__main__":
    main()
