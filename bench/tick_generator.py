"""The bench's load: JSON ticks into ticks.v1 at a steady rate, event time = the moment of publication.

Run as `python -m bench.tick_generator PLAN.json`: a process of its own, so that its CPU is not the stack's.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import orjson
from confluent_kafka import Producer
from numpy.typing import NDArray

DECIMALS: Final = 4
SLICE_SECONDS: Final = 0.005
MARKER_SECONDS: Final = 1.0
# A tick moves a price by about 8 bps; one in a hundred jumps by some percent.
STEP_SHARE: Final = 0.0008
JUMP_CHANCE: Final = 0.01
JUMP_SHARE: Final = 0.02


@dataclass(frozen=True)
class LoadPlan:
    """What to publish. `first_marker_id` and those above it, one a second, tell how far the stack has come."""

    bootstrap: str
    topic: str
    feed: str
    symbols: int
    ticks_per_second: int
    seconds: float
    seed: int
    first_marker_id: int
    record_file: str

    def save(self, path: Path) -> None:
        path.write_bytes(orjson.dumps(asdict(self)))

    @staticmethod
    def load(path: Path) -> LoadPlan:
        return LoadPlan(**orjson.loads(path.read_bytes()))


def symbol_name(index: int) -> str:
    return f"B{index:06}"


def first_prices(plan_seed: int, symbols: int) -> NDArray[np.int64]:
    """Scaled price of each symbol before its first tick."""
    return np.random.default_rng(plan_seed).integers(20 * 10**DECIMALS, 500 * 10**DECIMALS, symbols)


def walk(plan: LoadPlan, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Symbol index and scaled price of each of `count` ticks: every symbol in turn, in a shuffled order."""
    rng = np.random.default_rng(plan.seed + 1)
    order = rng.permutation(plan.symbols)
    rounds = -(-count // plan.symbols)
    moves = rng.normal(0.0, STEP_SHARE, (rounds, plan.symbols))
    jumps = rng.random((rounds, plan.symbols)) < JUMP_CHANCE
    moves = np.where(jumps, rng.normal(0.0, JUMP_SHARE, moves.shape), moves)
    prices = first_prices(plan.seed, plan.symbols)[order] * np.cumprod(1.0 + moves, axis=0)
    index = np.tile(order, rounds)[:count]
    return index, np.maximum(1, np.rint(prices)).astype(np.int64).reshape(-1)[:count]


def publish(plan: LoadPlan) -> None:
    """Publish for `seconds`, then a last marker; the record file holds what went out, in order."""
    producer = Producer(
        {"bootstrap.servers": plan.bootstrap, "linger.ms": 2, "enable.idempotence": True, "compression.type": "lz4",
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    count = int(plan.ticks_per_second * plan.seconds)
    index, price = walk(plan, count)
    names = [symbol_name(i) for i in range(plan.symbols)]
    event_time = np.zeros(count, dtype=np.int64)
    markers: list[tuple[int, int]] = []
    unit = 10**DECIMALS
    started, sent = time.monotonic(), 0
    while sent < count:
        elapsed = time.monotonic() - started
        due = min(count, int(elapsed * plan.ticks_per_second) + 1)
        now_ms = time.time_ns() // 1_000_000
        for k in range(sent, due):
            whole, part = divmod(int(price[k]), unit)
            producer.produce(
                plan.topic, b'{"feed":"%b","symbol":"%b","ts":%d,"price":"%d.%04d"}'
                % (plan.feed.encode(), names[index[k]].encode(), now_ms, whole, part), timestamp=now_ms,
            )  # fmt: skip
        event_time[sent:due] = now_ms
        sent = due
        if elapsed >= len(markers) * MARKER_SECONDS:
            markers.append(_mark(producer, plan, len(markers)))
        producer.poll(0)
        time.sleep(SLICE_SECONDS)
    markers.append(_mark(producer, plan, len(markers)))
    if producer.flush(60.0):
        raise RuntimeError(f"{plan.topic}: the last ticks were not acknowledged within 60 s")
    np.savez(
        plan.record_file, index=index, price=price, event_time=event_time,
        marker_id=np.array([m for m, _ in markers]), marker_ms=np.array([ms for _, ms in markers]),
    )  # fmt: skip


def _mark(producer: Producer, plan: LoadPlan, number: int) -> tuple[int, int]:
    marker_id, now_ms = plan.first_marker_id + number, time.time_ns() // 1_000_000
    body = {"feed": plan.feed, "type": "marker", "marker_id": marker_id}
    producer.produce(plan.topic, orjson.dumps(body), timestamp=now_ms)
    return marker_id, now_ms


if __name__ == "__main__":
    publish(LoadPlan.load(Path(sys.argv[1])))
