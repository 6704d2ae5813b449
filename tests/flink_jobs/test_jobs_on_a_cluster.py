"""Both jobs on a real cluster: killed, stopped, rescaled, fed rubbish; what they write is what the cores write."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from contracts import frames_pb2 as pb
from contracts.dead_letter import DeadLetter, Reason
from contracts.keys import bucket_shard
from contracts.topics import CANDIDATES, DEAD_LETTERS, PRICES, SHARD_LOG
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.rolling import RollingCore
from flink_jobs.domain.state import MemoryState
from ports.clock import SystemClock
from ports.kafka import KafkaReader, KafkaWriter
from ports.message_log import LogRecord
from stack.embedded import EmbeddedStack
from stack.flink.cluster import TASKMANAGER
from stack.jobs.spec import JobSpec
from stack.settings import REPOSITORY
from stack.topics import drop_topics, ensure_topics

ENVIRONMENT: Final = "jobs-on-a-cluster"
PREFIX: Final = "jobs-on-a-cluster."
JOBS: Final = ("rolling-metrics", "threshold-matcher")
BUCKETS: Final = 8
START_MS: Final = 1_700_000_000_000
PATIENCE_MS: Final = 120_000
EXPIRES_MS: Final = START_MS + 10_000_000
RUBBISH: Final = (b"", b"no frame at all", b"\x0a\x04main\x10\x03\xff\xff\xff")


def symbol(bucket: int) -> str:
    return f"SYM{bucket}"


def first_frame(bucket: int) -> bytes:
    frame = pb.PriceFrame(feed="main", bucket=bucket, lease=1)
    frame.controls.add(control_number=1).instrument.CopyFrom(pb.Instrument(symbol=symbol(bucket), decimals=2))
    frame.controls.add().heartbeat.frontier_ms = START_MS - 1
    return frame.SerializeToString()


def price_frame(bucket: int, number: int) -> bytes:
    """Four ticks, a second apart; prices rise from 100.00 by 0.25 a tick."""
    tick = np.arange(4 * number, 4 * number + 4, dtype="<i8")
    return pb.PriceFrame(
        feed="main", bucket=bucket, lease=1, symbols=[symbol(bucket)], symbol_index=bytes(8),
        event_time_ms=(START_MS + 1_000 * tick).tobytes(), price_scaled=(10_000 + 25 * tick).tobytes(),
        sequence=(tick + 1).tobytes(), session=np.ones(4, "<i8").tobytes(),
    ).SerializeToString()  # fmt: skip


def create_commands(bucket: int) -> bytes:
    """A rule that each frame crosses, and change rules on a minute's rise."""
    commands = pb.CommandFrame(shard=bucket_shard("main", bucket), epoch=1, first_number=1)
    for number in range(60):
        rule = pb.Rule(alert_id=100 * bucket + number + 1, version=1, symbol=symbol(bucket), expires_at_ms=EXPIRES_MS)
        if number % 2:
            rule.kind, rule.direction, rule.threshold = pb.PRICE, pb.ABOVE, 10_000 + 100 * number
        else:
            rule.kind, rule.direction, rule.threshold = pb.CHANGE, pb.UP, 100 + number
        commands.commands.add().create.rule.CopyFrom(rule)
    return pb.ShardLogRecord(commands=commands).SerializeToString()


class Log:
    """The test's hands on the topics."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._writer = KafkaWriter(bootstrap, "test")
        self.frames: dict[str, list[bytes]] = defaultdict(list)

    def write_prices(self, bucket: int, frame: bytes, timestamp_ms: int) -> None:
        key = bucket_shard("main", bucket)
        self.frames[key].append(frame)
        self._writer.append(PRICES.named(PREFIX), key.encode(), frame, timestamp_ms)

    def write(self, topic: str, bucket: int, value: bytes) -> None:
        self._writer.append(topic, bucket_shard("main", bucket).encode(), value, START_MS)

    def write_ticks(self, numbers: range) -> None:
        for number in numbers:
            for bucket in range(BUCKETS):
                self.write_prices(bucket, price_frame(bucket, number), START_MS + 4_000 * number)
        self._writer.flush()

    def flush(self) -> None:
        self._writer.flush()

    def read_until(self, topic: str, holds: Mapping[str, int] | int) -> list[LogRecord]:
        """All records, once each key has so many distinct ones (or the topic has). Fails after PATIENCE_MS."""
        clock, reader = SystemClock(), KafkaReader(self._bootstrap, "test")
        try:
            reader.assign({(topic, partition): 0 for partition in range(reader.partitions(topic))})
            found: list[LogRecord] = []
            distinct: dict[str, set[bytes]] = defaultdict(set)
            deadline = clock.monotonic_ms() + PATIENCE_MS
            while not _holds(distinct, holds):
                assert clock.monotonic_ms() < deadline, f"{topic} holds { {k: len(v) for k, v in distinct.items()} }"
                for record in reader.poll(1_000, 0.2):
                    found.append(record)
                    distinct[record.key.decode()].add(record.value)
            return found
        finally:
            reader.close()


def _holds(distinct: Mapping[str, set[bytes]], wanted: Mapping[str, int] | int) -> bool:
    if isinstance(wanted, int):
        return sum(map(len, distinct.values())) >= wanted
    return all(len(distinct.get(key, ())) >= count for key, count in wanted.items())


def by_key(records: Sequence[LogRecord]) -> dict[str, list[bytes]]:
    """Values of each key in order, repeats of a replay left out: they are the same to the byte."""
    found: dict[str, dict[bytes, None]] = defaultdict(dict)
    for record in records:
        found[record.key.decode()].setdefault(record.value)
    return {key: list(values) for key, values in found.items()}


def expected_metrics(frames: Mapping[str, Sequence[bytes]]) -> dict[str, list[bytes]]:
    expected = {}
    for bucket in range(BUCKETS):
        core, key = RollingCore(MemoryState(), "main", bucket, epoch=1), bucket_shard("main", bucket)
        expected[key] = [output.value for frame in frames[key] for output in core.process(frame).metrics]
    return expected


def expected_candidates(log: Mapping[str, Sequence[bytes]]) -> dict[str, list[bytes]]:
    expected = {}
    for key, records in log.items():
        core = MatcherCore(MemoryState(), key, epoch=1)
        expected[key] = [output.value for record in records for output in core.process(record)]
    return expected


def job_spec(name: str, bootstrap: str, parallelism: int) -> JobSpec:
    file = Path(REPOSITORY) / "flink_jobs" / f"{name.replace('-', '_')}.py"
    arguments = ("--bootstrap", bootstrap, "--topic-prefix", PREFIX, "--parallelism", str(parallelism))
    return JobSpec(environment=ENVIRONMENT, name=name, python_file=str(file), args=arguments)


@pytest.fixture
def log(embedded_stack: EmbeddedStack) -> Iterator[Log]:
    ensure_topics(embedded_stack.kafka, PREFIX)
    yield Log(embedded_stack.kafka)
    for name in JOBS:
        embedded_stack.jobs.remove(f"{ENVIRONMENT}-{name}")
    drop_topics(embedded_stack.kafka, PREFIX)


def test_killed_stopped_and_rescaled_jobs_write_what_the_cores_write(embedded_stack: EmbeddedStack, log: Log) -> None:
    jobs = embedded_stack.jobs
    for bucket in range(BUCKETS):
        log.write_prices(bucket, first_frame(bucket), START_MS)
        log.write(SHARD_LOG.named(PREFIX), bucket, create_commands(bucket))
    for name in JOBS:
        jobs.put(job_spec(name, embedded_stack.kafka, parallelism=1))
    for name in JOBS:
        jobs.wait_running(f"{ENVIRONMENT}-{name}")
    log.write_ticks(range(10))
    log.read_until(SHARD_LOG.named(PREFIX), {bucket_shard("main", bucket): 12 for bucket in range(BUCKETS)})

    os.kill(embedded_stack.supervisor.states()[TASKMANAGER].pid, signal.SIGKILL)
    for bucket, rubbish in enumerate(RUBBISH):
        log.write(PRICES.named(PREFIX), bucket, rubbish)
    log.write_ticks(range(10, 20))
    log.read_until(SHARD_LOG.named(PREFIX), {bucket_shard("main", bucket): 22 for bucket in range(BUCKETS)})

    for name in JOBS:
        jobs.stop_with_savepoint(f"{ENVIRONMENT}-{name}")
    log.write_ticks(range(20, 30))
    for name in JOBS:
        jobs.put(job_spec(name, embedded_stack.kafka, parallelism=2))

    metrics = expected_metrics(log.frames)
    counts = {key: len(values) + 1 for key, values in metrics.items()}
    found = by_key(log.read_until(SHARD_LOG.named(PREFIX), counts))
    assert {
        key: [v for v in values if pb.ShardLogRecord.FromString(v).HasField("metrics")] for key, values in found.items()
    } == metrics
    candidates = expected_candidates(found)
    counts = {key: len(values) for key, values in candidates.items()}
    assert by_key(log.read_until(CANDIDATES.named(PREFIX), counts)) == candidates
    entries = [
        e for values in candidates.values() for value in values for e in pb.CandidateFrame.FromString(value).entries
    ]
    fired = [entry.candidate.alert_id for entry in entries if entry.HasField("candidate")]
    assert len(fired) == len(set(fired)) > 100

    letters = [
        DeadLetter.model_validate_json(r.value) for r in log.read_until(DEAD_LETTERS.named(PREFIX), len(RUBBISH))
    ]
    assert {letter.reason for letter in letters} == {Reason.BAD_FRAME}
    assert len({letter.position for letter in letters}) == len(RUBBISH)
