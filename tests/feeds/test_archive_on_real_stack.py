"""The archive as its process, on a real broker and database, killed with -9 again and again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from contracts.keys import bucket_of
from contracts.topics import ALL_TOPICS, PRICES
from contracts.vocabulary import DAY_MS
from feeds.archive.reader import ArchiveReader
from feeds.domain.pending_frame import PendingFrame
from ports.kafka import KafkaWriter
from sql.connection import Pool, transaction
from stack.topics import drop_topics, ensure_topics

PREFIX = "archive-real."
DEADLINE_SECONDS = 90
BUCKETS = 4
SYMBOLS = [f"S{n}" for n in range(12)]
KILLS = 6


def test_killed_again_and_again_it_holds_every_tick_once(
    kafka: str, postgres_server: str, postgres_schema: str, pool: Pool, tmp_path: Path
) -> None:
    ensure_topics(kafka, PREFIX, ALL_TOPICS)
    folder, health = tmp_path / "archive", tmp_path / "health.json"
    environment = {
        **os.environ, "ALERTS_KAFKA": kafka, "ALERTS_POSTGRES_DSN": postgres_server, "ALERTS_TOPIC_PREFIX": PREFIX,
        "ALERTS_POSTGRES_SCHEMA": postgres_schema, "ALERTS_ARCHIVE_FOLDER": str(folder),
        "ALERTS_HEALTH_FILE": str(health),
        "ALERTS_ARCHIVE_ROLL_SECONDS": "0.2",
    }  # fmt: skip
    writer = KafkaWriter(kafka, "test")
    frames = {bucket: PendingFrame("real", bucket, 1) for bucket in range(BUCKETS)}
    expected: Counter[tuple[str, int, int]] = Counter()
    reader = ArchiveReader(folder)
    log = (tmp_path / "log").open("wb")

    def send(round_number: int) -> None:
        for n in range(300):
            at = round_number * 300 + n
            for symbol in SYMBOLS:
                frame = frames[bucket_of(symbol, BUCKETS)]
                if symbol not in frame.symbols:
                    frame.symbols.append(symbol)
                tick = (symbol, 1_767_607_200_000 + at * DAY_MS // 500, at + 1)
                frame.symbol_index.append(frame.symbols.index(symbol))
                for column, value in zip(
                    (frame.event_time_ms, frame.price_scaled, frame.sequence, frame.session),
                    (tick[1], tick[2], at + 1, 1),
                    strict=True,
                ):
                    column.append(value)
                expected[tick] += 1
            if n % 10 == 9:
                for frame in frames.values():
                    if frame.event_time_ms:
                        cut = frame.cut({}, 1)
                        writer.append(PRICES.named(PREFIX), cut.key, cut.value, 1)
        writer.flush()

    def found() -> Counter[tuple[str, int, int]]:
        rows: Counter[tuple[str, int, int]] = Counter()
        for bucket in range(BUCKETS):
            for row in reader.bucket_table("real", bucket).select([0, 1, 2]).to_pylist():
                rows[row["symbol"], row["event_time_ms"], row["price_scaled"]] += 1
        return rows

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "feeds.archive"], env=environment, stdout=log, stderr=log)

    def until(process: subprocess.Popen[bytes], done: Any) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not done():
            assert process.poll() is None, (tmp_path / "log").read_text()[-2_000:]
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()[-2_000:]
            os.sched_yield()

    process = None
    try:
        for kill in range(KILLS):
            send(kill)
            process = start()
            before = sum(1 for _ in folder.rglob("*.parquet*"))
            # a moment that is another each time: after the first file, after the second, …
            until(process, lambda: sum(1 for _ in folder.rglob("*.parquet*")) > before + kill)  # noqa: B023
            process.send_signal(signal.SIGKILL)
            process.wait()
            rows = found()
            assert max(rows.values(), default=1) == 1
            assert not rows - expected
        process = start()
        until(process, lambda: sum(found().values()) >= sum(expected.values()))
        assert found() == expected

        def latest() -> dict[str, int]:
            with transaction(pool) as connection:
                rows = connection.execute("SELECT symbol, price_scaled FROM latest_prices").fetchall()
            return {row["symbol"]: row["price_scaled"] for row in rows}

        until(process, lambda: latest() == dict.fromkeys(SYMBOLS, KILLS * 300))
        until(process, lambda: json.loads(health.read_text())["ok"] if health.exists() else False)
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        log.close()
        writer.close()
        drop_topics(kafka, PREFIX, ALL_TOPICS)
