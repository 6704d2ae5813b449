"""The whole path under load: raw tick published → TRIGGERED committed, with what each part costs, and nothing lost."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.cpu_usage import CpuUsage
from bench.expected_triggers import BenchAlert, expected_triggers, series_by_symbol
from bench.tick_generator import DECIMALS, LoadPlan, first_prices, symbol_name
from contracts.frames_pb2 import Control, Instrument
from contracts.keys import bucket_of, bucket_shard
from contracts.topics import TICKS
from contracts.vocabulary import DAY_MS
from ports.secrets import new_key
from sql.bench_store import BenchStore, BulkAlert, BulkInstrument, Outcome
from sql.connection import transaction
from stack.progress import say, step
from stack.replay.barriers import feed_shards
from stack.replay.own_environment import OwnEnvironment, own_environment
from stack.settings import REPOSITORY

FEED: Final = "bench"
OWNER: Final = "load"
CHUNK_ALERTS: Final = 10_000
# The first minute has no 1-minute change yet.
WARM_UP_SECONDS: Final = 75.0
SAMPLE_SECONDS: Final = 0.25
DEADLINE_SECONDS: Final = 300.0
GOAL_TICKS_PER_SECOND: Final = 5_000
# A lag that has grown by more than this over the measurement is falling behind.
STEADY_LAG_SECONDS: Final = 2.0


@dataclass(frozen=True)
class EndToEndLoad:
    """The set-up of a run. Half of the alerts are prices, most of the others 1-minute changes."""

    seconds: float = 60.0
    rate: int = 5_000
    symbols: int = 20_000
    alerts: int = 100_000
    buckets: int = 16
    seed: int = 7


@dataclass(frozen=True)
class Record:
    """What the generator published, in order; markers are one a second."""

    index: np.ndarray[Any, np.dtype[np.int64]]
    price: np.ndarray[Any, np.dtype[np.int64]]
    event_time: np.ndarray[Any, np.dtype[np.int64]]
    marker_sent_ms: Mapping[int, int]


def measure_end_to_end(load: EndToEndLoad) -> dict[str, Any]:
    """Raises StackError when a part does not come up or something is stuck."""
    with (
        own_environment("bench", env={"ALERTS_SECRET_KEY": new_key()}, deadline_s=DEADLINE_SECONDS) as own,
        tempfile.TemporaryDirectory(prefix="alerts-bench-") as folder,
    ):
        installed_seconds = _install(own, load)
        return _Run(own, load, Path(folder)).measure(installed_seconds)


def _install(own: OwnEnvironment, load: EndToEndLoad) -> float:
    """Instruments known to the gateway and alerts ACTIVE; seconds that the alerts took."""
    own.admin.request("POST", "/v1/admin/feeds", json={"feed": FEED, "buckets": load.buckets, "clock_mode": "live"})
    own.new_owner_key(OWNER, "alerts")
    with step(f"declaring {load.symbols} instruments"):
        with transaction(own.pool) as connection:
            BenchStore(connection).insert_instruments(FEED, map(_instrument(load), range(load.symbols)))
        own.barriers.await_controls(FEED)
    owners = own.admin.request("GET", "/v1/admin/owners")["owners"]
    owner_id = next(owner["owner_id"] for owner in owners if owner["name"] == OWNER)
    alerts = make_alerts(load)
    started = time.monotonic()
    with step(f"creating {load.alerts} alerts"):
        now_ms = time.time_ns() // 1_000_000
        for first in range(0, len(alerts), CHUNK_ALERTS):
            with transaction(own.pool) as connection:
                chunk = alerts[first : first + CHUNK_ALERTS]
                BenchStore(connection).insert_alerts(owner_id, chunk, now_ms, now_ms + 30 * DAY_MS)
        own.barriers.wait("alerts are not active", lambda: _pending(own))
    return time.monotonic() - started


def _instrument(load: EndToEndLoad) -> Any:
    def make(index: int) -> BulkInstrument:
        symbol = symbol_name(index)
        control = Control(instrument=Instrument(symbol=symbol, decimals=DECIMALS))
        return BulkInstrument(symbol, DECIMALS, bucket_of(symbol, load.buckets), control.SerializeToString())

    return make


def _pending(own: OwnEnvironment) -> str:
    with transaction(own.pool) as connection:
        pending = BenchStore(connection).count_by_status().get("PENDING", 0)
    return f"{pending} are PENDING" if pending else ""


def make_alerts(load: EndToEndLoad) -> list[BulkAlert]:
    """Seeded: prices up to 3 % away, 1-minute changes of 0.5 to 4 %, some 1-hour ones that have no reference yet."""
    rng = np.random.default_rng(load.seed + 2)
    prices = first_prices(load.seed, load.symbols)
    shards = [bucket_shard(FEED, bucket_of(symbol_name(i), load.buckets)) for i in range(load.symbols)]
    symbols = rng.integers(0, load.symbols, load.alerts).tolist()
    kinds = rng.choice(["price", "1m", "1h"], load.alerts, p=[0.5, 0.4, 0.1]).tolist()
    away = rng.uniform(0.001, 0.03, load.alerts)
    bps = rng.integers(50, 400, load.alerts).tolist()
    above = (rng.random(load.alerts) < 0.5).tolist()
    directions = rng.choice(["UP", "DOWN", "EITHER"], load.alerts).tolist()
    alerts = []
    for k, symbol in enumerate(symbols):
        window = None if kinds[k] == "price" else kinds[k]
        threshold, direction = bps[k], directions[k]
        if window is None:
            direction = "ABOVE" if above[k] else "BELOW"
            threshold = int(prices[symbol] * (1 + away[k] if above[k] else 1 - away[k]))
        alerts.append(BulkAlert(symbol_name(symbol), shards[symbol], window, direction, threshold, DECIMALS))
    return alerts


class _Run:
    """Load, watch, judge."""

    def __init__(self, own: OwnEnvironment, load: EndToEndLoad, folder: Path) -> None:
        self._own, self._load = own, load
        self._plan_file, self._record_file = folder / "plan.json", folder / "record.npz"
        self._lags: list[tuple[float, int]] = []  # (wall ms, newest marker finalized everywhere)

    def measure(self, installed_seconds: float) -> dict[str, Any]:
        load = self._load
        plan = LoadPlan(
            self._own.stack.kafka, TICKS.named(self._own.topic_prefix), FEED, load.symbols, load.rate,
            WARM_UP_SECONDS + load.seconds, load.seed, 1, str(self._record_file),
        )  # fmt: skip
        plan.save(self._plan_file)
        generator = subprocess.Popen(
            [sys.executable, "-m", "bench.tick_generator", str(self._plan_file)], cwd=REPOSITORY
        )
        try:
            with step(f"load for {WARM_UP_SECONDS + load.seconds:.0f} s"):
                cpu, measured_from_ms = self._watch(generator)
                by_part = cpu.seconds()
            record = self._read_record()
            with step("waiting for the last tick to be finalized"):
                drained_ms = self._await(max(record.marker_sent_ms), time.time() + DEADLINE_SECONDS)
        finally:
            if generator.poll() is None:
                generator.kill()
                generator.wait()
        with step("reckoning which alerts had to fire"):
            return self._judge(record, by_part, measured_from_ms, drained_ms, installed_seconds)

    def _watch(self, generator: subprocess.Popen[bytes]) -> tuple[CpuUsage, int]:
        """Sample lag and CPU while the generator runs; CPU counts from the end of the warm-up."""
        started, cpu, measured_from_ms = time.monotonic(), None, 0
        while generator.poll() is None:
            if cpu is None and time.monotonic() - started >= WARM_UP_SECONDS:
                cpu, measured_from_ms = CpuUsage(self._processes(generator.pid)), time.time_ns() // 1_000_000
            elif cpu is not None:
                cpu.sample()
            self._sample_lag()
            time.sleep(SAMPLE_SECONDS)
        if generator.returncode or cpu is None:
            raise RuntimeError(f"the load generator ended with {generator.returncode}")
        return cpu, measured_from_ms

    def _processes(self, generator_pid: int) -> dict[str, int]:
        prefix = f"{self._own.environment.name}-"
        states = self._own.stack.supervisor.states().values()
        pids = {state.name.removeprefix(prefix): state.pid for state in states if state.pid}
        return {**pids, "load-generator": generator_pid}

    def _sample_lag(self) -> int:
        """Newest marker that every shard has finalized."""
        shards = feed_shards(FEED, self._load.buckets)
        found = self._own.barriers.read(lambda store: store.shards(shards))
        newest = min((found[shard].marker_id for shard in shards), default=0) if len(found) == len(shards) else 0
        self._lags.append((time.time() * 1_000, newest))
        return newest

    def _await(self, marker_id: int, until: float) -> float:
        while self._sample_lag() < marker_id:
            if time.time() > until:
                self._own.barriers.await_marker(FEED, self._load.buckets, marker_id)
            time.sleep(0.02)
        return self._lags[-1][0]

    def _read_record(self) -> Record:
        with np.load(self._record_file) as stored:
            markers = dict(zip(stored["marker_id"].tolist(), stored["marker_ms"].tolist(), strict=True))
            return Record(stored["index"], stored["price"], stored["event_time"], markers)

    def _judge(
        self, record: Record, by_part: dict[str, float], from_ms: int, drained_ms: float, installed_seconds: float
    ) -> dict[str, Any]:
        with transaction(self._own.pool) as connection:
            store = BenchStore(connection)
            outcomes, (outbox, alerts) = store.outcomes(), store.count_outbox()
        verdict = compare(outcomes, record)
        latencies = [
            o.committed_ms - o.event_time_ms
            for o in outcomes
            if o.committed_ms is not None and o.event_time_ms is not None and o.event_time_ms >= from_ms
        ]
        ticks = int((record.event_time >= from_ms).sum())
        first_lag, last_lag = self._lag_seconds(record, from_ms)
        rate = ticks / ((drained_ms - from_ms) / 1_000)
        generator = by_part.pop("load-generator", 0.0)
        p50, p99 = (round(float(np.percentile(latencies, q)), 1) if latencies else None for q in (50, 99))
        return {
            "bench": "end-to-end", "ticks_per_second": round(rate), "p50_ms": p50, "p99_ms": p99,
            "triggers": len(latencies), "stack_cpu_seconds": round(sum(by_part.values()), 1),
            **verdict, "doubled": outbox - alerts, "goal": GOAL_TICKS_PER_SECOND,
            "met": rate >= 0.95 * min(GOAL_TICKS_PER_SECOND, self._load.rate)
            and last_lag - first_lag <= STEADY_LAG_SECONDS,
            "lag_seconds": {"first": first_lag, "last": last_lag},
            "alerts_active_per_second": round(self._load.alerts / installed_seconds),
            "cpu_seconds_by_part": by_part, "load_generator_cpu_seconds": generator,
            "setup": {**asdict(self._load), "warm_up_seconds": WARM_UP_SECONDS, "windows": 6, "machine": _machine()},
        }  # fmt: skip

    def _lag_seconds(self, record: Record, from_ms: int) -> tuple[float, float]:
        """How long ago the newest finalized marker was sent: medians of the first and last quarter."""
        sent = record.marker_sent_ms
        until_ms = int(record.event_time[-1])
        lags = [
            (at - sent[newest]) / 1_000 for at, newest in self._lags if newest in sent and from_ms <= at <= until_ms
        ]
        if not lags:
            say("no marker came out while the load ran: the stack is behind from the start")
            return 0.0, (until_ms - from_ms) / 1_000
        quarter = max(1, len(lags) // 4)
        return round(float(np.median(lags[:quarter])), 2), round(float(np.median(lags[-quarter:])), 2)


def compare(outcomes: list[Outcome], record: Record) -> dict[str, int]:
    """lost: had to fire and didn't. wrong: fired without need, or at another tick."""
    alerts = [BenchAlert(o.alert_id, int(o.symbol[1:]), o.rate_window, o.direction, o.threshold) for o in outcomes]
    expected = expected_triggers(alerts, series_by_symbol(record.index, record.event_time, record.price))
    actual = {o.alert_id: o.event_time_ms for o in outcomes if o.status == "TRIGGERED"}
    return {
        "lost": len(expected.keys() - actual.keys()),
        "wrong": sum(expected.get(alert_id) != at_ms for alert_id, at_ms in actual.items()),
        "triggers_in_all": len(actual),
    }


def _machine() -> str:
    import psutil  # noqa: PLC0415

    return f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total // 2**30} GiB"
