"""A scenario through the production cores in one process: no broker, no database, no clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from contracts import frames_pb2 as pb
from contracts.keys import bucket_of, bucket_shard
from contracts.prices import PriceError, parse_price
from contracts.vocabulary import DEFAULT_LIFETIME_MS, WINDOWS, Kind
from feeds.domain.entry import SourceEntry
from feeds.domain.feed_settings import REPLAY, feed_settings
from feeds.domain.gateway_core import GatewayCore
from feeds.domain.recovered import RecoveredFeed
from stack.errors import StackError
from stack.replay.alert_table import StoredAlert
from stack.replay.core_pipeline import Checkpoint, CorePipeline
from stack.replay.scenario import (
    Cancel,
    Create,
    Heartbeat,
    Instrument,
    Operation,
    Resume,
    Scenario,
    Settings,
    Split,
    Tick,
)  # fmt: skip

FEED: Final = "replay"
SOURCE: Final = "scenario[0]"
LEASE: Final = 1
DEFAULT_BUCKETS: Final = 4


@dataclass(frozen=True)
class Disturbance:
    """What must not change a result: where frames are cut, where stages are stopped and resumed.

    `cut_chance` and `resume_chance` are for each operation of the scenario; a resume goes back to a checkpoint made
    some operations before (or at once), so that what was written since is written again.
    """

    seed: int = 0
    cut_chance: float = 0.0
    resume_chance: float = 0.0
    checkpoint_chance: float = 0.0


@dataclass
class _Market:
    """What a create's default time depends on."""

    frontier_ms: int = 0
    emitted_ms: dict[str, int] = field(default_factory=dict)
    decimals: dict[str, int] = field(default_factory=dict)


class CoreReplay:
    """One scenario. `run` gives the result rows."""

    def __init__(self, buckets: int = DEFAULT_BUCKETS, disturbance: Disturbance | None = None) -> None:
        self._disturbance = disturbance or Disturbance()
        self._random = random.Random(self._disturbance.seed)  # noqa: S311  (seeded disturbance, no secret)
        self._buckets = buckets
        self._pipeline = CorePipeline(FEED, buckets)
        self._gateway = GatewayCore(
            feed_settings(FEED, buckets, REPLAY, {}), LEASE, {}, RecoveredFeed(), wall_ms=0, monotonic_ms=0
        )
        self._market = _Market()
        self._entries = 0
        self._control_number = 0
        self._read_until = 0  # shard-log records whose ticks are known to _Market
        self._checkpoints: list[tuple[Checkpoint, Checkpoint]] = [self._checkpoint()]

    def run(self, scenario: Scenario) -> Iterator[dict[str, Any]]:
        """Rows in the order of creation, then the counts."""
        for operation in scenario.operations:
            self._play(operation)
            self._disturb()
        self._send({"type": "flush"})
        self._send({"type": "marker", "marker_id": 1})
        self._settle()
        yield from self._pipeline.alerts.rows()
        progress = self._pipeline.alerts.progress.values()
        yield {"counts": {name: sum(getattr(p, name) for p in progress) for name in ("rejected", "duplicate", "late")}}

    def creation_time_ms(self, create: Create) -> int:
        """As tests/scenarios/README.md says of `at`."""
        if create.created_at_ms is not None:
            return create.created_at_ms
        self._observe()
        at_ms = max(self._market.frontier_ms, self._market.emitted_ms.get(create.symbol, 0))
        if not at_ms:
            raise StackError(f"create {create.id} needs `at`", remedy="no tick and no heartbeat comes before it")
        return at_ms

    # -- operations -----------------------------------------------------------------------------
    def _play(self, operation: Operation) -> None:
        match operation:
            case Tick(symbol, fields):
                self._send({"symbol": symbol, **fields})
            case Heartbeat(frontier_ms):
                self._market.frontier_ms = max(self._market.frontier_ms, frontier_ms)
                self._send({"type": "heartbeat", "ts": frontier_ms})
            case Create():
                self._settle()
                self._create(operation)
                self._pipeline.settle()
            case Cancel(alert_id):
                self._settle()
                self._pipeline.alerts.cancel(alert_id)
            case _:
                if isinstance(operation, Instrument):
                    self._market.decimals[operation.symbol] = operation.decimals
                self._control(operation)

    def _send(self, body: dict[str, Any]) -> None:
        self._gateway.accept(SourceEntry(SOURCE, self._entries, body, orjson.dumps(body)), 0)
        self._entries += 1

    def _control(self, operation: Settings | Instrument | Split | Resume) -> None:
        self._control_number += 1
        symbol = getattr(operation, "symbol", None)
        bucket = None if symbol is None else bucket_of(symbol, self._buckets)
        self._gateway.accept_control(render_control(operation), self._control_number, bucket, 0)

    def _create(self, create: Create) -> None:
        created_at_ms = self.creation_time_ms(create)
        decimals = self._market.decimals[create.symbol]
        alerts = self._pipeline.alerts
        rule = pb.Rule(
            alert_id=alerts.next_id(), version=1, symbol=create.symbol,
            kind=pb.CHANGE if create.kind is Kind.CHANGE else pb.PRICE,
            window=WINDOWS.index(create.window) if create.window else 0,
            direction=pb.Direction.Value(create.direction.value),
            threshold=_threshold(create, decimals), created_at_ms=created_at_ms,
            expires_at_ms=create.expires_at_ms or created_at_ms + DEFAULT_LIFETIME_MS,
        )  # fmt: skip
        shard = bucket_shard(FEED, bucket_of(create.symbol, self._buckets))
        alerts.create(StoredAlert(create.id, shard, rule, decimals))

    # -- the pipeline ---------------------------------------------------------------------------
    def _settle(self) -> None:
        """A barrier: everything sent so far is finalized."""
        self._cut()
        self._pipeline.settle()

    def _cut(self) -> None:
        for frame in self._gateway.cut(0, everything=True):
            self._pipeline.prices.append((frame.key.decode(), frame.value))

    def _observe(self) -> None:
        """Newest emitted event time of each symbol, as the shard log tells it."""
        for _, value in self._pipeline.shard_log[self._read_until :]:
            for symbol, at_ms in _emitted(value):
                self._market.emitted_ms[symbol] = max(at_ms, self._market.emitted_ms.get(symbol, 0))
        self._read_until = len(self._pipeline.shard_log)

    def _disturb(self) -> None:
        disturbance = self._disturbance
        if self._happens(disturbance.cut_chance):
            self._cut()
            if self._happens(0.5):
                self._pipeline.settle()
        if self._happens(disturbance.checkpoint_chance):
            self._checkpoints.append(self._checkpoint())
        if self._happens(disturbance.resume_chance):
            self._settle()
            checkpoint = self._random.choice(self._checkpoints[-3:])
            which = self._random.choice(((True, False), (False, True), (True, True)))
            for stage, saved, chosen in zip(self._pipeline.stages, checkpoint, which, strict=True):
                if chosen:
                    stage.restore(saved)

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance

    def _checkpoint(self) -> tuple[Checkpoint, Checkpoint]:
        rolling, matcher = self._pipeline.stages
        return rolling.checkpoint(), matcher.checkpoint()


def replay_in_process(
    scenario: Scenario, buckets: int = DEFAULT_BUCKETS, disturbance: Disturbance | None = None
) -> list[dict[str, Any]]:
    """Result rows of a scenario."""
    return list(CoreReplay(buckets, disturbance).run(scenario))


def resolve_creation_times(scenario: Scenario) -> dict[str, int]:
    """Alert -> the time it is created at, for scenarios that leave `at` to the feed."""
    times: dict[str, int] = {}

    class _Noting(CoreReplay):
        def creation_time_ms(self, create: Create) -> int:
            times[create.id] = super().creation_time_ms(create)
            return times[create.id]

    list(_Noting().run(scenario))
    return times


def render_control(operation: Settings | Instrument | Split | Resume) -> pb.Control:
    """The control of prices.v1, without its number."""
    match operation:
        case Settings(reorder_ms, ages, max_ahead_ms):
            settings = pb.Settings(reorder_ms=reorder_ms, reference_age_ms=dict(ages), max_ahead_ms=max_ahead_ms)
            return pb.Control(settings=settings)
        case Instrument(symbol, decimals):
            return pb.Control(instrument=pb.Instrument(symbol=symbol, decimals=decimals))
        case Split(symbol, new_shares, old_shares, effective_from_ms):
            split = pb.Split(
                symbol=symbol, effective_from_ms=effective_from_ms, new_shares=new_shares, old_shares=old_shares
            )
            return pb.Control(split=split)
        case Resume(symbol):
            return pb.Control(resume=pb.Resume(symbol=symbol))


def _threshold(create: Create, decimals: int) -> int:
    if create.kind is Kind.CHANGE:
        assert create.bps is not None
        return create.bps
    try:
        return parse_price(create.target, decimals)
    except PriceError as error:
        raise StackError(f"create {create.id}: {error}") from None


def _emitted(value: bytes) -> Iterator[tuple[str, int]]:
    """(symbol, event time) of each tick in a shard-log record."""
    record = pb.ShardLogRecord.FromString(value)
    if record.WhichOneof("kind") != "metrics":
        return
    frame = record.metrics
    indexes, times = memoryview(frame.symbol_index).cast("H"), memoryview(frame.event_time_ms).cast("q")
    for index, at_ms in zip(indexes, times, strict=True):
        yield frame.symbols[index], at_ms


Engine = Callable[[Scenario], list[dict[str, Any]]]
