"""A burst of claims through the finalizer as it ships: candidates.v1 → TRIGGERED with outbox row and remove command.

A stack of its own (broker and database, shipped settings) holds the alerts; consumer and relays are the services'
own processes. The clock runs from the first frame handed to the broker to the commit of the last transition.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from bench.cpu_usage import CpuUsage
from contracts.frames_pb2 import Candidate, CandidateEntry, CandidateFrame, Direction
from contracts.keys import bucket_of, bucket_shard
from contracts.topics import CANDIDATES, TRIGGERS
from contracts.vocabulary import DAY_MS, WINDOWS
from ports.kafka import KafkaReader, KafkaWriter
from sql.bench_store import BenchStore, BulkInstrument
from sql.connection import Pool, open_pool, transaction
from sql.migrate import migrate
from sql.reference_store import ReferenceStore
from sql.server import settle
from stack.embedded import KAFKA, POSTGRES, EmbeddedStack
from stack.environment import Addresses, Environment, archive_folder, service_env, service_program
from stack.errors import StackError
from stack.health import await_healthy
from stack.postgres import server
from stack.progress import say, step
from stack.settings import StackSettings
from stack.topics import ensure_topics

GOAL_TRANSITIONS_PER_SECOND: Final = 20_000
GOAL_BURST: Final = 1_000_000
GOAL_BURST_SECONDS: Final = 60.0
FEED: Final = "bench"
BUCKETS: Final = 16
SYMBOLS: Final = 2_000
DECIMALS: Final = 2
REPEAT_EVERY: Final = 20  # each 20th frame comes twice, as from a job that was restored
CHUNK_ALERTS: Final = 50_000
POLL_SECONDS: Final = 0.1
STALL_SECONDS: Final = 120.0
STATEMENT_TIMEOUT_MS: Final = 3_600_000
NAME: Final = "bench-finalizer"


@dataclass(frozen=True)
class FinalizerLoad:
    """burst: claims. rows: ACTIVE alerts beside those claimed, scattered among them. frame: entries a record."""

    burst: int = GOAL_BURST
    rows: int = 100_000
    owners: int = 1_000
    frame: int = 250
    rule_relay: bool = True
    seed: int = 7


def measure_finalizer(load: FinalizerLoad) -> dict[str, Any]:
    """Raises StackError when a part does not come up, dies or stands still."""
    home = Path(tempfile.mkdtemp(prefix="alerts-bench-finalizer-"))
    home.chmod(0o711)  # Postgres's account must enter it
    stack = EmbeddedStack(StackSettings().model_copy(update={"home": home, "flink_port": None, "api_port": None}))
    with ExitStack() as ending:
        ending.callback(stack.destroy)
        stack.up((KAFKA, POSTGRES))
        services = ("finalizer", "trigger-relay", *(("rule-relay",) if load.rule_relay else ()))
        environment = Environment(NAME, "", NAME.replace("-", "_"), services=services, jobs=())
        migrate(stack.postgres_dsn, environment.schema)
        ensure_topics(stack.kafka, environment.topic_prefix)
        pool = ending.enter_context(
            open_pool(stack.postgres_dsn, environment.schema, NAME, statement_timeout_ms=STATEMENT_TIMEOUT_MS)
        )
        return _Run(stack, environment, pool, load).measure()


class _Run:
    """Fill, burst, wait, judge."""

    def __init__(self, stack: EmbeddedStack, environment: Environment, pool: Pool, load: FinalizerLoad) -> None:
        self._stack, self._environment, self._pool, self._load = stack, environment, pool, load
        self._load_before: list[float] = []

    def measure(self) -> dict[str, Any]:
        load = self._load
        with step(f"{load.burst + load.rows} ACTIVE alerts"):
            now_ms = time.time_ns() // 1_000_000
            self._fill(now_ms)
        with step(f"{load.burst} claims in frames"):
            burst = self._choose()
            with transaction(self._pool) as connection:
                places = list(_places(BenchStore(connection), burst))
            frames = make_frames(places, load.frame, now_ms, load.seed)
        with step("vacuum, analyze, checkpoint"):
            settle(self._stack.postgres_dsn, self._environment.schema)
        pids = self._start_services()
        usage = CpuUsage({**pids, server.NAME: self._pid(server.NAME)})
        with step(f"burst of {load.burst}"):
            burst_seconds = self._drain(frames)
        cpu = usage.seconds()
        with step("waiting for the outbox to be published"):
            started = time.monotonic()
            self._await_published()
            published_seconds = burst_seconds + time.monotonic() - started
        memory = {name: peak_memory_mib(pid) for name, pid in pids.items()}
        if {name: self._pid(self._environment.program_name(name)) for name in pids} != pids:
            raise StackError("a service has ended and was restarted", where=str(self._stack.home.logs))
        with step("counting what became of them"), transaction(self._pool) as connection:
            ends = BenchStore(connection).ends(burst)
        rate = load.burst / burst_seconds
        return {
            "bench": "finalizer", "transitions_per_second": round(rate), "burst": load.burst,
            "burst_seconds": round(burst_seconds, 2), **asdict(ends),
            "published_seconds": round(published_seconds, 2), "messages_published": self._messages(),
            "peak_memory_mib": memory["finalizer"], "peak_memory_mib_by_part": memory, "cpu_seconds_by_part": cpu,
            "goal": GOAL_TRANSITIONS_PER_SECOND,
            "met": is_met(rate, load.burst, burst_seconds) and not any(asdict(ends).values()),
            "setup": {
                **asdict(load), "symbols": SYMBOLS, "buckets": BUCKETS, "repeated_frames": f"1 in {REPEAT_EVERY}",
                "services": list(pids), "synchronous_commit": self._setting("synchronous_commit"),
                "fsync": self._setting("fsync"), "machine": _machine(), "load_average_before": self._load_before,
            },
        }  # fmt: skip

    def _fill(self, now_ms: int) -> None:
        load, total = self._load, self._load.burst + self._load.rows
        ReferenceStore(self._pool).create_feed(FEED, BUCKETS, "replay")
        shards = {f"S{number:05}": bucket_shard(FEED, bucket_of(f"S{number:05}", BUCKETS)) for number in range(SYMBOLS)}
        with transaction(self._pool) as connection:
            store = BenchStore(connection)
            store.insert_instruments(FEED, (BulkInstrument(s, DECIMALS, bucket_of(s, BUCKETS), b"") for s in shards))
            store.insert_owners(load.owners)
        for done in range(0, total, CHUNK_ALERTS):
            with transaction(self._pool) as connection:
                numbers = range(done + 1, min(done + CHUNK_ALERTS, total) + 1)
                BenchStore(connection).insert_active_alerts(
                    numbers, load.owners, shards, created_at_ms=now_ms - DAY_MS, expires_at_ms=now_ms + 30 * DAY_MS
                )
            if done and done % (20 * CHUNK_ALERTS) == 0:
                say(f"{done} alerts")

    def _choose(self) -> list[int]:
        """The schema is fresh, so the alerts are numbered from 1."""
        total = self._load.burst + self._load.rows
        chosen = np.random.default_rng(self._load.seed).choice(total, self._load.burst, replace=False) + 1
        return [int(alert_id) for alert_id in np.sort(chosen)]

    def _start_services(self) -> dict[str, int]:
        """name -> pid, healthy."""
        stack, environment = self._stack, self._environment
        addresses = Addresses(stack.kafka, stack.postgres_dsn, "")
        env = service_env(environment, addresses, 0, stack.settings.log_level, archive_folder(NAME, stack.home))
        services = environment.find_services()
        for service in services:
            stack.add_program(service_program(environment, service, env, stack.home))
        names = {service.name: environment.program_name(service.name) for service in services}
        await_healthy(stack.home, stack.supervisor, list(names.values()), stack.settings.start_timeout_s)
        self._load_before = [round(share, 1) for share in psutil.getloadavg()]
        return {name: self._pid(program) for name, program in names.items()}

    def _pid(self, program: str) -> int:
        found = self._stack.supervisor.states().get(program)
        if found is None or not found.pid:
            raise StackError(f"{program} does not run", where=str(self._stack.home.logs / f"{program}.log"))
        return found.pid

    def _drain(self, frames: Sequence[CandidateFrame]) -> float:
        """Seconds from the first frame's hand-over to the commit of the last."""
        writer = KafkaWriter(self._stack.kafka, NAME)
        topic = CANDIDATES.named(self._environment.topic_prefix)
        records = [(frame.shard.encode(), frame.SerializeToString()) for frame in frames]
        started = time.monotonic()
        for number, (key, value) in enumerate(records):
            for _ in range(2 if number % REPEAT_EVERY == 0 else 1):
                writer.append(topic, key, value, 0)
        writer.flush()
        say(f"handed over after {time.monotonic() - started:.1f} s")
        done, moved_at, told_at = 0, started, started
        while done < self._load.burst:
            time.sleep(POLL_SECONDS)
            before, now = done, time.monotonic()
            with transaction(self._pool) as connection:
                done = BenchStore(connection).count_finalized()
            if done > before:
                moved_at = now
            elif now - moved_at > STALL_SECONDS:
                raise StackError(
                    f"{done} of {self._load.burst} claims finalized and nothing more for {STALL_SECONDS:.0f} s",
                    where=str(self._stack.home.logs),
                )
            if now - told_at > 5.0:
                told_at = now
                say(f"{done} of {self._load.burst} finalized after {now - started:.0f} s")
        ended = time.monotonic()
        writer.close()
        return ended - started

    def _await_published(self) -> None:
        until = time.monotonic() + max(STALL_SECONDS, self._load.burst / 1_000)
        while True:
            with transaction(self._pool) as connection:
                if not BenchStore(connection).has_unpublished():
                    return
            if time.monotonic() > until:
                raise StackError("the outbox is not published", where=str(self._stack.home.logs))
            time.sleep(POLL_SECONDS)

    def _messages(self) -> int:
        reader = KafkaReader(self._stack.kafka, NAME)
        try:
            return sum(reader.end_offsets(TRIGGERS.named(self._environment.topic_prefix)).values())
        finally:
            reader.close()

    def _setting(self, name: str) -> str:
        with transaction(self._pool) as connection:
            return BenchStore(connection).setting(name)


def is_met(rate: float, burst: int, seconds: float) -> bool:
    """The rate, and for a burst of the goal's size its time too."""
    return rate >= GOAL_TRANSITIONS_PER_SECOND and (burst < GOAL_BURST or seconds <= GOAL_BURST_SECONDS)


def _places(store: BenchStore, burst: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    for first in range(0, len(burst), CHUNK_ALERTS):
        yield from store.places(burst[first : first + CHUNK_ALERTS])


def make_frames(places: Sequence[tuple[int, str, str]], frame: int, now_ms: int, seed: int) -> list[CandidateFrame]:
    """places: (alert_id, shard, kind). One claim each, in an order drawn by the seed; shards take turns."""
    by_shard: dict[str, list[CandidateEntry]] = defaultdict(list)
    for index in np.random.default_rng(seed).permutation(len(places)).tolist():
        alert_id, shard, kind = places[index]
        entries = by_shard[shard]
        entries.append(
            CandidateEntry(position=len(entries) + 1, candidate=_claim(alert_id, kind, len(entries), now_ms))
        )
    cut = {
        shard: [
            CandidateFrame(shard=shard, epoch=1, first_number=first + 1, entries=entries[first : first + frame])
            for first in range(0, len(entries), frame)
        ]
        for shard, entries in by_shard.items()
    }
    longest = max(map(len, cut.values()), default=0)
    return [frames[place] for place in range(longest) for frames in cut.values() if place < len(frames)]


def _claim(alert_id: int, kind: str, place: int, now_ms: int) -> Candidate:
    common = {
        "alert_id": alert_id, "version": 1, "event_time_ms": now_ms + place % 1_000, "sequence": place + 1,
        "session": 1, "price_scaled": 10_550 + place % 100,
    }  # fmt: skip
    if kind == "change":
        return Candidate(
            **common, fired=Direction.UP, window=WINDOWS.index("1h"), reference_time_ms=now_ms - 3_600_000,
            reference_price_scaled=10_000, previous_bps=480, current_bps=550 + place % 100,
        )  # fmt: skip
    return Candidate(**common, fired=Direction.ABOVE, previous_price_scaled=10_480, previous_event_time_ms=now_ms - 500)


def peak_memory_mib(pid: int) -> float:
    """Largest resident memory of the process so far (Linux's VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1_024, 1)
    raise StackError(f"process {pid} tells no peak of its memory", remedy="this benchmark needs Linux")


def _machine() -> str:
    return f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total // 2**30} GiB"
