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
from stack.flink.rest import FlinkRest
from stack.jobs.spec import JobSpec
from stack.settings import REPOSITORY
from stack.topics import drop_topics, ensure_topics

ENVIRONMENT: Final = "jobs-on-a-cluster"
PREFIX: Final = "jobs-on-a-cluster."
JOBS: Final = ("rolling-metrics", "threshold-matcher")
BUCKETS: Final = 8
START_MS: Final = 1_700_000_000_000
PATIENCE_MS: Final = 300_000  # for a machine that does much else; alone each wait takes seconds
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


def _metrics(record: bytes) -> bool:
    return bool(pb.ShardLogRecord.FromString(record).HasField("metrics"))


def expected_metrics(frames: Mapping[str, Sequence[bytes]], epoch: int) -> dict[str, list[bytes]]:
    expected = {}
    for bucket in range(BUCKETS):
        core, key = RollingCore(MemoryState(), "main", bucket, epoch), bucket_shard("main", bucket)
        expected[key] = [output.value for frame in frames[key] for output in core.process(frame).metrics]
    return expected


def expected_candidates(log: Mapping[str, Sequence[bytes]], epoch: int) -> dict[str, list[bytes]]:
    expected = {}
    for key, records in log.items():
        core = MatcherCore(MemoryState(), key, epoch)
        expected[key] = [output.value for record in records for output in core.process(record)]
    return expected


def job_spec(name: str, bootstrap: str, parallelism: int) -> JobSpec:
    file = Path(REPOSITORY) / "flink_jobs" / f"{name.replace('-', '_')}.py"
    arguments = ("--bootstrap", bootstrap, "--topic-prefix", PREFIX, "--parallelism", str(parallelism))
    return JobSpec(environment=ENVIRONMENT, name=name, python_file=str(file), args=arguments)


def _statuses(embedded_stack: EmbeddedStack) -> Iterator[str]:
    """What Flink says of this test's jobs, and what failed last in each."""
    with FlinkRest(embedded_stack.flink_rest_url) as rest:
        for job in rest.jobs():
            if job.name.startswith(ENVIRONMENT):
                yield f"{job.name} {job.state}: {rest.root_exception(job.job_id)}"


@pytest.fixture
def log(embedded_stack: EmbeddedStack) -> Iterator[Log]:
    ensure_topics(embedded_stack.kafka, PREFIX)
    yield Log(embedded_stack.kafka)
    for status in _statuses(embedded_stack):
        print(status)  # noqa: T201 - pytest shows it beside a failure
    for name in JOBS:
        embedded_stack.jobs.remove(f"{ENVIRONMENT}-{name}")
    drop_topics(embedded_stack.kafka, PREFIX)


def check_metrics_and_candidates(log: Log) -> None:
    # the stack chose the epoch; the state keeps it, so everything is under the first one
    counts = {key: 1 + len(frames) for key, frames in log.frames.items()}
    found = by_key(log.read_until(SHARD_LOG.named(PREFIX), counts))
    metrics = {key: [value for value in values if _metrics(value)] for key, values in found.items()}
    epoch = pb.ShardLogRecord.FromString(metrics[bucket_shard("main", 0)][0]).metrics.epoch
    assert metrics == expected_metrics(log.frames, epoch)

    first = log.read_until(CANDIDATES.named(PREFIX), 1)[0]
    candidates = expected_candidates(found, pb.CandidateFrame.FromString(first.value).epoch)
    counts = {key: len(values) for key, values in candidates.items()}
    assert by_key(log.read_until(CANDIDATES.named(PREFIX), counts)) == candidates
    frames = [pb.CandidateFrame.FromString(value) for values in candidates.values() for value in values]
    fired = [entry.candidate.alert_id for frame in frames for entry in frame.entries if entry.HasField("candidate")]
    assert len(fired) == len(set(fired)) > 100


def check_dead_letters(log: Log) -> None:
    letters = [
        DeadLetter.model_validate_json(r.value) for r in log.read_until(DEAD_LETTERS.named(PREFIX), len(RUBBISH))
    ]
    assert {letter.reason for letter in letters} == {Reason.BAD_FRAME}
    assert len({letter.position for letter in letters}) == len(RUBBISH)


def test_killed_stopped_and_rescaled_jobs_write_what_the_cores_write(embedded_stack: EmbeddedStack, log: Log) -> None:
    jobs = embedded_stack.jobs
    for bucket in range(BUCKETS):
        log.write_prices(bucket, first_frame(bucket), START_MS)
        log.write(SHARD_LOG.named(PREFIX), bucket, create_commands(bucket))
    for name in JOBS:
        jobs.put(job_spec(name, embedded_stack.kafka, parallelism=1))
    for name in JOBS:
        jobs.wait_running(f"{ENVIRONMENT}-{name}", PATIENCE_MS / 1_000)
    log.write_ticks(range(10))
    log.read_until(SHARD_LOG.named(PREFIX), {bucket_shard("main", bucket): 12 for bucket in range(BUCKETS)})

    os.kill(embedded_stack.supervisor.states()[TASKMANAGER].pid, signal.SIGKILL)
    for bucket, rubbish in enumerate(RUBBISH):
        log.write(PRICES.named(PREFIX), bucket, rubbish)
    log.write_ticks(range(10, 20))
    log.read_until(SHARD_LOG.named(PREFIX), {bucket_shard("main", bucket): 22 for bucket in range(BUCKETS)})

    for name in JOBS:
        jobs.stop_with_savepoint(f"{ENVIRONMENT}-{name}", timeout_s=PATIENCE_MS / 1_000)
    log.write_ticks(range(20, 30))
    for name in JOBS:
        jobs.put(job_spec(name, embedded_stack.kafka, parallelism=2))

    check_metrics_and_candidates(log)
    check_dead_letters(log)
