"""The whole trio under kill -9: a job goes on with its state after each part of Flink and the supervisor has died."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from stack.embedded import EmbeddedStack
from stack.flink.cluster import JOBMANAGER, TASKMANAGER
from stack.flink.configuration import checkpoints_folder
from stack.flink.rest import FlinkRest
from stack.jobs.record import JobRecord, find_newest_state, read_record
from stack.jobs.spec import JobFolder, JobSpec
from stack.orphans import find_processes, recorded_process
from stack.topics import drop_topics, ensure_topics

KEYS = [f"key-{number}" for number in range(20)]
WAIT_S = 300.0


@dataclass(frozen=True)
class _Topic:
    name: str
    partitions: int
    config: dict[str, str]


SOURCE = _Topic("numbers", 2, {})
SINK = _Topic("counts", 1, {})


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(0.2)


class Counting:
    """The job, what was sent to it, and what it has answered."""

    def __init__(self, stack: EmbeddedStack, prefix: str) -> None:
        self.stack = stack
        self.prefix = prefix
        self.sent: Counter[str] = Counter()
        self.counts: dict[str, int] = {}
        self.births: dict[str, set[str]] = {}
        self.consumer = Consumer(
            {"bootstrap.servers": stack.kafka, "group.id": f"{prefix}test", "auto.offset.reset": "error"}
        )
        # assigned, not subscribed: the broker dies in between, and a group would be lost with it
        self.consumer.assign([TopicPartition(f"{prefix}counts", 0, 0)])

    def submit(self) -> None:
        self.stack.jobs.put(
            JobSpec(
                environment="recovery",
                name="counting",
                python_file=str(Path(__file__).with_name("counting_job.py")),
                args=(
                    "--kafka", self.stack.kafka, "--source", f"{self.prefix}numbers", "--sink", f"{self.prefix}counts",
                ),
            )
        )  # fmt: skip

    def send(self, times: int) -> None:
        producer = Producer({"bootstrap.servers": self.stack.kafka})
        for _ in range(times):
            for key in KEYS:
                producer.produce(f"{self.prefix}numbers", value=key, key=key)
                self.sent[key] += 1
        assert producer.flush(30) == 0

    def read(self) -> None:
        for message in self.consumer.consume(500, timeout=0.2):
            if message.error() is not None:
                # the client says that the broker is away, and comes back by itself
                assert message.error().retriable() or message.error().code() < 0, message.error()
                continue
            key, count, birth = message.value().decode().split()
            self.counts[key] = max(self.counts.get(key, 0), int(count))
            self.births.setdefault(key, set()).add(birth)

    def await_all_counted(self) -> None:
        def counted() -> bool:
            self.read()
            return self.counts == dict(self.sent)

        wait_for(f"counts of all {sum(self.sent.values())} records, has {sum(self.counts.values())}", counted)

    def await_checkpoint(self) -> None:
        """A checkpoint that began after everything so far was answered."""
        job_id = self.stack.jobs.wait_running("recovery-counting", WAIT_S)
        with FlinkRest(self.stack.flink_rest_url) as rest:
            before = rest.latest_checkpoint(job_id)
            first = before.checkpoint_id if before else 0

            def newer() -> bool:
                now = rest.latest_checkpoint(job_id)
                return now is not None and now.checkpoint_id >= first + 2

            wait_for("two more checkpoints", newer)

    @property
    def record(self) -> JobRecord:
        return read_record(JobFolder(self.stack.home, "recovery-counting").record_file)


@pytest.fixture
def counting(embedded_stack: EmbeddedStack) -> Iterator[Counting]:
    prefix = f"recovery-{time.time_ns()}."
    ensure_topics(embedded_stack.kafka, prefix, [SOURCE, SINK])
    job = Counting(embedded_stack, prefix)
    yield job
    job.consumer.close()
    embedded_stack.up()
    embedded_stack.jobs.remove("recovery-counting")
    drop_topics(embedded_stack.kafka, prefix, [SOURCE, SINK])


def kill(stack: EmbeddedStack, program: str) -> None:
    process = recorded_process(stack.home.pids / f"{program}.pid")
    assert process is not None, f"{program} does not run"
    process.kill()
    wait_for(f"the end of {program}", lambda: not process.is_running(), 10)


def test_job_goes_on_with_its_state_after_each_kill(embedded_stack: EmbeddedStack, counting: Counting) -> None:
    counting.submit()
    counting.send(5)
    counting.await_all_counted()
    counting.await_checkpoint()
    assert [attempt.restored_from for attempt in counting.record.attempts] == [None]

    # the cluster restarts the job by itself, under the same id
    kill(embedded_stack, TASKMANAGER)
    counting.send(5)
    counting.await_all_counted()
    counting.await_checkpoint()
    assert len(counting.record.attempts) == 1

    # a session cluster forgets its jobs: the keeper submits it again, from the newest checkpoint
    newest = find_newest_state(counting.record, checkpoints_folder(embedded_stack.home))
    kill(embedded_stack, JOBMANAGER)
    counting.send(5)
    counting.await_all_counted()
    counting.await_checkpoint()
    assert len(counting.record.attempts) == 2
    restored_from = counting.record.attempts[1].restored_from
    assert restored_from is not None
    assert newest is not None
    assert int(restored_from.rpartition("-")[2]) >= int(newest.rpartition("-")[2])

    # nobody supervises what runs on: `up` finds it, stops it and goes on from the disk
    kill(embedded_stack, "supervisord")
    orphans = {orphan.program for orphan in find_processes(embedded_stack.home)}
    assert {"kafka", JOBMANAGER, TASKMANAGER, "job-keeper"} <= orphans
    counting.send(5)
    embedded_stack.up()
    counting.await_all_counted()
    counting.await_checkpoint()

    # everything at once
    for orphan in find_processes(embedded_stack.home, (embedded_stack.postgres.folder,)):
        orphan.process.kill()
    wait_for("their end", lambda: not find_processes(embedded_stack.home), 20)
    embedded_stack.up()
    counting.send(5)
    counting.await_all_counted()

    # a stop with savepoint: the next start goes on from it
    savepoint = embedded_stack.jobs.stop_with_savepoint("recovery-counting")
    assert savepoint is not None
    counting.send(5)
    embedded_stack.jobs.want("recovery-counting")
    counting.await_all_counted()
    assert counting.record.attempts[-1].restored_from == savepoint

    assert {key: len(births) for key, births in counting.births.items()} == dict.fromkeys(KEYS, 1)
    # it never started without state again, so it never took another epoch
    assert len({attempt.epoch for attempt in counting.record.attempts}) == 1


def test_memory_of_killed_workers_is_given_back(embedded_stack: EmbeddedStack, counting: Counting) -> None:
    """Python workers must not outlive their TaskManager."""
    counting.submit()
    counting.send(1)
    counting.await_all_counted()
    manager = recorded_process(embedded_stack.home.pids / f"{TASKMANAGER}.pid")
    assert manager is not None
    workers = manager.children(recursive=True)
    assert workers
    manager.kill()
    # at once when they were at work; one that was still starting is ended by the keeper
    _, alive = psutil.wait_procs(workers, timeout=90)
    assert alive == []


def test_postgres_keeps_what_was_committed_before_a_kill(embedded_stack: EmbeddedStack, postgres: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (number integer)")
        connection.execute("INSERT INTO kept VALUES (7)")
    server = recorded_process(embedded_stack.postgres.program().pid_file(embedded_stack.home))
    assert server is not None
    server.kill()
    wait_for("the end of postgres", lambda: not server.is_running(), 10)
    wait_for("postgres", embedded_stack.postgres.is_ready, 60)
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]
