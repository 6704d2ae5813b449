"""The rolling job on the embedded stack: price frames in Kafka to metrics in the shard log, RocksDB underneath.

Three jobs' worth of load go through one run of the job: the history (large frames), then the ticks at the two frame
sizes of the goals, each measured from the first frame's publication to the end marker in every bucket's shard log; at
last the TaskManager is killed while ticks come in.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import psutil

from bench.rolling_core import measure_bytes_per_tick, measure_rolling_core
from bench.rolling_load import FEED, BucketFrames, Phase, RollingLoad
from contracts import frames_pb2 as pb
from contracts.keys import bucket_shard
from contracts.topics import ALL_TOPICS, PRICES, SHARD_LOG
from contracts.vocabulary import WINDOWS
from ports.kafka import KafkaReader, KafkaWriter
from stack.embedded import FLINK, KAFKA, EmbeddedStack
from stack.errors import StackError
from stack.flink.cluster import TASKMANAGER
from stack.jobs.spec import JobSpec
from stack.progress import say, step
from stack.settings import REPOSITORY
from stack.topics import drop_topics, ensure_topics

JOB: Final = "rolling-metrics"
GOAL_TICKS_PER_SECOND: Final = 150_000
GOAL_SMALL_FRAMES: Final = 80_000
GOAL_BYTES: Final = {"poisson": 2.0, "grid": 0.5, "sp500": 2.0}
POLL_SECONDS: Final = 0.1
QUIET_SECONDS: Final = 0.5  # without a new record before anybody reads whether the end has come
TAIL_RECORDS: Final = 256  # a partition's last ones are read for its buckets' markers, more of them each time
STUCK_SECONDS: Final = 240.0  # without a single new record
RESTORE_MINUTES: Final = 5
# what the bench writes into the shard log and never reads again needn't fill the disk
_KEPT_LOG: Final = {"retention.bytes": str(512 * 2**20), "segment.bytes": str(64 * 2**20)}
_SP500: Final = REPOSITORY.parent / "shared" / "data" / "sp500-1min-2019-11.csv"


def measure_rolling(
    load: RollingLoad, parallelism: int = 2, core_buckets: int = 4, sp500: Path | None = _SP500
) -> dict[str, Any]:
    """Core first, then the job. Raises StackError when a part does not come up or nothing moves any more."""
    with step("the core alone, on one core"):
        core = measure_rolling_core(core_load(load), core_buckets)
    bytes_a_tick = measure_bytes_per_tick(max(1, load.symbols // load.buckets), sp500)
    job = _measure_job(load, parallelism)
    small, large = job["small"]["ticks_per_second"], job["large"]["ticks_per_second"]
    packed = all((found := bytes_a_tick[k]) is not None and found <= most for k, most in GOAL_BYTES.items())
    return {
        "bench": "rolling", "ticks_per_second": large, "ticks_per_frame": load.large_frame,
        "ticks_per_second_small_frames": small, "symbols": load.symbols, "windows": len(WINDOWS),
        "bytes_per_tick": bytes_a_tick, "history_ticks": job["history"]["ticks"],
        "restore_seconds": job["restore_seconds"], "goal": GOAL_TICKS_PER_SECOND,
        "goals": {"small_frames": GOAL_SMALL_FRAMES, "bytes_per_tick": GOAL_BYTES},
        "met": large >= GOAL_TICKS_PER_SECOND and small >= GOAL_SMALL_FRAMES and packed,
        "core": core, "job": job,
        "setup": {**asdict(load), "parallelism": parallelism, "block_writer": "pcodec", "machine": _machine()},
    }  # fmt: skip


def core_load(load: RollingLoad) -> RollingLoad:
    """The same a symbol, with no more history than a minute or so of work."""
    return replace(load, history_ticks=min(load.history_ticks, RollingLoad.history_ticks))


def _measure_job(load: RollingLoad, parallelism: int) -> dict[str, Any]:
    with _cluster() as (stack, prefix):
        run = _JobRun(stack, prefix, load, parallelism)
        try:
            return run.measure()
        finally:
            run.close()


@contextmanager
def _cluster() -> Iterator[tuple[EmbeddedStack, str]]:
    """Kafka and Flink, stopped afterwards if they were started here; topics under a prefix of our own."""
    stack, prefix = EmbeddedStack(), f"bench-rolling-{os.getpid()}."
    started = not stack.supervisor.is_alive()
    topics = [replace(t, config={**t.config, **_KEPT_LOG}) if t is SHARD_LOG else t for t in ALL_TOPICS]
    try:
        stack.up((KAFKA, FLINK))
        ensure_topics(stack.kafka, prefix, topics)
        try:
            yield stack, prefix
        finally:
            drop_topics(stack.kafka, prefix)
    finally:
        if started:
            stack.down()


class _JobRun:
    """One job over one load."""

    def __init__(self, stack: EmbeddedStack, prefix: str, load: RollingLoad, parallelism: int) -> None:
        self._stack, self._load, self._prefix = stack, load, prefix
        self._buckets = [BucketFrames(load, bucket) for bucket in range(load.buckets)]
        self._writer = KafkaWriter(stack.kafka, "bench-rolling")
        self._reader = KafkaReader(stack.kafka, "bench-rolling")
        self._log = SHARD_LOG.named(prefix)
        self._entries = 0  # that the shard log must hold: ticks and markers
        self._markers = 0
        file = REPOSITORY / "flink_jobs" / f"{JOB.replace('-', '_')}.py"
        arguments = ("--kafka", stack.kafka, "--topic-prefix", prefix, "--parallelism", str(parallelism))
        self._spec = JobSpec(prefix.removesuffix("."), JOB, str(file), arguments)

    def close(self) -> None:
        self._stack.jobs.remove(self._spec.full_name)
        self._reader.close()
        self._writer.close()

    def measure(self) -> dict[str, Any]:
        with step("starting the job"):
            self._stack.jobs.put(self._spec)
            self._stack.jobs.wait_running(self._spec.full_name, self._stack.settings.start_timeout_s)
        with step(f"history of {self._load.history_ticks:,} ticks"):
            found = {"history": self._run(self._in_turn([bucket.history() for bucket in self._buckets]))}
        minute = 0
        for name, phase in zip(("large", "small"), self._load.phases(), strict=True):
            made = self._phase(minute, phase)
            with step(f"{phase.minutes * self._load.symbols:,} ticks at {phase.ticks_per_frame} a frame"):
                found[name] = self._run(iter(made))
            minute += phase.minutes
        restore = self._restore(minute)
        with step("a savepoint, for the size of the state"):
            savepoint = self._stack.jobs.stop_with_savepoint(self._spec.full_name)
        size = _size_of(Path(savepoint.removeprefix("file:"))) if savepoint else 0
        ticks = sum(int(phase["ticks"]) for phase in found.values())
        return {**found, **restore, "state_bytes": size, "state_bytes_per_tick": round(size / ticks, 2)}

    def _phase(self, first_minute: int, phase: Phase) -> list[tuple[int, bytes, int, int]]:
        return list(self._in_turn([bucket.phase(first_minute, phase) for bucket in self._buckets]))

    @staticmethod
    def _in_turn(makers: list[Iterator[tuple[bytes, int, int]]]) -> Iterator[tuple[int, bytes, int, int]]:
        """(bucket, frame, timestamp, ticks), a frame of each bucket in turn."""
        running = dict(enumerate(makers))
        while running:
            for bucket in list(running):
                made = next(running[bucket], None)
                if made is None:
                    del running[bucket]
                else:
                    yield bucket, *made

    def _run(self, frames: Iterator[tuple[int, bytes, int, int]]) -> dict[str, Any]:
        """Publish all, then wait for the marker behind them in every shard's log."""
        cpu_before, began = self._cpu(), time.monotonic()
        ticks, count = self._publish(frames)
        ended = self._await_markers(self._mark())
        seconds = ended - began
        cpu = {part: round(after - cpu_before.get(part, 0.0), 1) for part, after in self._cpu().items()}
        return {
            "ticks": ticks, "frames": count, "seconds": round(seconds, 2), "ticks_per_second": round(ticks / seconds),
            "cpu_seconds": cpu, "cpu_microseconds_per_tick": round(1e6 * sum(cpu.values()) / max(ticks, 1), 2),
        }  # fmt: skip

    def _publish(self, frames: Iterator[tuple[int, bytes, int, int]]) -> tuple[int, int]:
        topic = PRICES.named(self._prefix)
        keys = [bucket_shard(FEED, bucket).encode() for bucket in range(self._load.buckets)]
        ticks = count = 0
        for bucket, frame, timestamp_ms, rows in frames:
            self._writer.append(topic, keys[bucket], frame, timestamp_ms)
            ticks += rows
            count += 1 if rows else 0
        self._entries += ticks
        return ticks, count

    def _mark(self) -> int:
        self._markers += 1
        self._entries += self._load.buckets
        for maker in self._buckets:
            key = bucket_shard(FEED, maker.bucket).encode()
            self._writer.append(PRICES.named(self._prefix), key, maker.marker(self._markers), 0)
        self._writer.flush()
        return self._markers

    def _await_markers(self, marker_id: int) -> float:
        """The moment when the last of a marker's records came; every entry is accounted for then."""
        ends, moved, tail = self._reader.end_offsets(self._log), time.monotonic(), TAIL_RECORDS
        while True:
            time.sleep(POLL_SECONDS)
            found, now = self._reader.end_offsets(self._log), time.monotonic()
            if found != ends:
                ends, moved = found, now
            if now - moved < QUIET_SECONDS:
                continue
            numbers = self._tail_numbers(ends, marker_id, tail)
            tail *= 4  # one worker may be behind another by any number of records
            if len(numbers) == self._load.buckets:
                if sum(numbers.values()) != self._entries:
                    raise StackError(
                        f"the shard log numbers {sum(numbers.values())} entries, {self._entries} went in: the job"
                        f" refused or lost ticks", where=self._log,
                    )  # fmt: skip
                return moved
            if now - moved > STUCK_SECONDS:
                raise StackError(
                    f"no metric for {STUCK_SECONDS:.0f} s; {len(numbers)} of {self._load.buckets} buckets are through",
                    where=self._log, remedy="see `./alerts status` and the TaskManager's log",
                )  # fmt: skip

    def _tail_numbers(self, ends: dict[int, int], marker_id: int, tail: int) -> dict[str, int]:
        """Shard -> number of its marker's entry, of the shards whose newest record is that marker's."""
        begins = self._reader.begin_offsets(self._log)
        starts = {p: max(begins[p], end - tail) for p, end in ends.items() if end > begins[p]}
        self._reader.assign({(self._log, partition): start for partition, start in starts.items()})
        wanted, newest = sum(ends[p] - start for p, start in starts.items()), {}
        deadline = time.monotonic() + STUCK_SECONDS
        while wanted > 0 and time.monotonic() < deadline:
            for record in self._reader.poll(wanted, POLL_SECONDS):
                wanted -= 1
                newest[record.key.decode()] = pb.ShardLogRecord.FromString(record.value).metrics
        return {
            shard: frame.first_number + frame.count - 1
            for shard, frame in newest.items()
            if any(control.marker.marker_id == marker_id for control in frame.controls)
        }

    def _restore(self, minute: int) -> dict[str, float]:
        """Kill the TaskManager in the middle of ticks, after a checkpoint."""
        made = self._phase(minute, Phase(RESTORE_MINUTES, self._load.large_frame))
        with step("waiting for a checkpoint"):
            time.sleep(2 * self._stack.settings.checkpoint_interval_ms / 1_000)
        with step("kill -9 of the TaskManager among ticks, and restore"):
            before = self._reader.end_offsets(self._log)
            half = len(made) // 2
            self._publish(iter(made[:half]))
            self._await_growth(before)
            os.kill(self._stack.supervisor.states()[TASKMANAGER].pid, signal.SIGKILL)
            killed = time.monotonic()
            at_kill = self._reader.end_offsets(self._log)
            self._publish(iter(made[half:]))
            marker_id = self._mark()
            self._await_growth(at_kill)
            restored = time.monotonic() - killed
            caught_up = self._await_markers(marker_id) - killed
        return {"restore_seconds": round(restored, 1), "caught_up_seconds": round(caught_up, 1)}

    def _await_growth(self, before: dict[int, int]) -> None:
        deadline = time.monotonic() + STUCK_SECONDS
        while self._reader.end_offsets(self._log) == before:
            if time.monotonic() > deadline:
                raise StackError(f"no metric for {STUCK_SECONDS:.0f} s", where=self._log)
            time.sleep(POLL_SECONDS)

    def _cpu(self) -> dict[str, float]:
        """CPU seconds so far: the TaskManager's JVM, its Python workers, the broker."""
        states = self._stack.supervisor.states()
        jvm = psutil.Process(states[TASKMANAGER].pid)
        workers = [child for child in jvm.children(recursive=True) if "python" in child.name()]
        found = {"taskmanager_jvm": _seconds(jvm), "python_workers": sum(map(_seconds, workers))}
        if "kafka" in states:
            found["kafka"] = _seconds(psutil.Process(states["kafka"].pid))
        return found


def _seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        say(f"process {process.pid} ended while its CPU was read")
        return 0.0
    return float(times.user + times.system)


def _size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _machine() -> str:
    return f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total // 2**30} GiB"
