"""Feeds with sources of their own in one gateway: exact restarts, time that stands still, faults that stay put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contracts.frames_pb2 import Heartbeat, PriceFrame
from feeds.domain.entry import SourceEntry
from feeds.domain.feed_clock import SourceState
from feeds.gateway import FEEDS_INTERVAL_MS, FeedGateway, Served
from feeds.memory_store import MemoryFeedStore
from feeds.own_sources import RETRY_MS, OwnSources
from feeds.sources.kafka_json import KafkaJsonSource
from feeds.sources.plug_ins import SESSION_POSITIONS, SourceOrder, open_feed_source
from feeds.sources.source import Source, SourceError
from ports.memory_log import MemoryLog
from ports.message_log import LogWriter

WALL_MS = 1_767_607_200_000


class ScriptedSource:
    """A network source as the gateway sees one: what is put into it comes out, with the state that it was told."""

    def __init__(self, order: SourceOrder) -> None:
        self.order = order
        self.told = SourceState(1, None)
        self.waiting: list[dict[str, Any]] = []
        self.next = order.first_position
        self.closed = False
        self.breaks = False

    def seek(self, positions: Mapping[str, int]) -> None: ...

    def poll(self, max_entries: int, timeout_seconds: float) -> Sequence[SourceEntry]:
        if self.breaks:
            raise SourceError("it broke")
        entries = [SourceEntry(self.order.name, self.next + n, body, b"{}") for n, body in enumerate(self.waiting)]
        self.next += len(entries)
        self.waiting = []
        return entries

    def positions(self) -> Mapping[str, int]:
        return {self.order.name: self.next}

    def state(self) -> SourceState:
        return self.told

    def close(self) -> None:
        self.closed = True


class DyingWriter:
    """Durable at every append, and dead after so many."""

    def __init__(self, log: MemoryLog, budget: int) -> None:
        self._log, self._budget = log, budget

    def append(self, topic: str, key: bytes, value: bytes, timestamp_ms: int) -> None:
        self._budget -= 1
        if self._budget < 0:
            raise InterruptedError
        self._log.add([(topic, key, value, timestamp_ms)])

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Stage:
    """A log, a store, and gateways over them whose feeds' sources are opened by `opener`."""

    def __init__(self, clock: Any) -> None:
        self.log = MemoryLog({"ticks.v1": 1, "prices.v1": 4, "dead-letters.v1": 1})
        self.store = MemoryFeedStore()
        self.clock = clock
        self.opened: list[ScriptedSource] = []

    def declare(self, feed: str, mode: str, symbols: Sequence[str] = ("A",), **settings: Any) -> None:
        self.store.declare_feed(feed, 2, mode, **settings)
        for symbol in symbols:
            self.store.declare_instrument(feed, symbol, 2)

    def scripted(self, stored: object, order: SourceOrder) -> Source:
        if stored == "missing":
            raise SourceError("there is none")
        self.opened.append(ScriptedSource(order))
        return self.opened[-1]

    def open(self, writer: LogWriter | None = None, *, scripted: bool = True) -> FeedGateway:
        opener = self.scripted if scripted else open_feed_source
        return FeedGateway(
            store=self.store,
            source=KafkaJsonSource(self.log.reader(), "ticks.v1", "ticks.v1", self.clock),
            writer=writer or self.log.writer(),
            prices=self.log.reader(),
            clock=self.clock,
            served=Served(),
            own_sources=OwnSources(self.clock, {}, opener),
        )

    def run(self, gateway: FeedGateway, elapsed_ms: int, stride_ms: int = 50) -> None:
        for _ in range(0, elapsed_ms, stride_ms):
            gateway.step()
            self.clock.pass_ms(stride_ms)

    def prices(self) -> list[bytes]:
        return [record.value for record in self.log.records("prices.v1")]

    def frontier_ms(self, feed: str) -> int:
        found = [
            control.heartbeat.frontier_ms
            for frame in map(PriceFrame.FromString, self.prices())
            if frame.feed == feed
            for control in frame.controls
            if control.HasField("heartbeat")
        ]
        return max(found, default=0)


@pytest.fixture
def stage(clock: Any) -> Stage:
    return Stage(clock)


@pytest.mark.parametrize("budget", range(2, 7))
def test_a_file_is_read_exactly_once_whenever_the_gateway_dies(
    budget: int, tmp_path: Path, new_clock: Any, read_frames: Any
) -> None:
    rows = [(WALL_MS + n, f"{n + 1}.25", "AB"[n % 3 == 0]) for n in range(40)]
    times, prices, symbols = (list(column) for column in zip(*rows, strict=True))
    pq.write_table(pa.table({"ts": times, "price": prices, "symbol": symbols}), tmp_path / "p.parquet")
    source = {"kind": "parquet", "path": str(tmp_path), "flush_at_end": True}
    calm, stormy = Stage(new_clock()), Stage(new_clock())
    for stage in (calm, stormy):
        stage.declare("f", "replay", "AB", source=source, frame_rows=3, catching_up_frame_rows=3)
    calm.run(calm.open(scripted=False), 500)
    for _ in range(3):
        with pytest.raises(InterruptedError):
            stormy.run(stormy.open(DyingWriter(stormy.log, budget), scripted=False), 500)
    stormy.run(stormy.open(scripted=False), 500)
    found = read_frames(stormy.prices(), "f")
    assert found == read_frames(calm.prices(), "f")
    assert sum(entry[0] == "tick" for entries in found[0].values() for entry in entries) == 40


def test_a_live_sources_positions_rise_over_restarts_and_its_ticks_are_its_feeds(
    stage: Stage, read_frames: Any
) -> None:
    stage.declare("f", "live", source="net")
    stage.declare("g", "live", ["B"])
    gateway = stage.open()
    stage.opened[0].waiting = [{"symbol": "A", "ts": WALL_MS, "price": "1"}, {"feed": "g", "symbol": "B", "price": "1"}]
    stage.run(gateway, 200)
    gateway.close()
    assert stage.opened[0].closed
    again = stage.open()
    stage.opened[1].waiting = [{"symbol": "A", "ts": WALL_MS + 1, "price": "2"}]
    stage.run(again, 200)
    assert [source.order.first_position for source in stage.opened] == [SESSION_POSITIONS, 2 * SESSION_POSITIONS]
    ticks = [e for entries in read_frames(stage.prices(), "f")[0].values() for e in entries if e[0] == "tick"]
    assert [(e[1], e[3], e[5]) for e in ticks] == [("A", 100, 1), ("A", 200, 2)]
    letters = [record.value for record in stage.log.records("dead-letters.v1")]
    assert len(letters) == 1
    assert b"unknown_symbol" in letters[0]


def test_time_stands_still_while_the_source_is_away_and_until_it_has_caught_up(stage: Stage) -> None:
    stage.declare("f", "live", source="net")
    stage.declare("other", "live", ["B"])
    gateway = stage.open()
    source = stage.opened[0]

    def proven(connection: int, elapsed_ms: int) -> None:
        """Alive, and nothing waits, for so long."""
        for _ in range(0, elapsed_ms, 100):
            source.told = SourceState(connection, stage.clock.monotonic_ms())
            stage.run(gateway, 100)

    source.waiting = [{"symbol": "A", "ts": WALL_MS, "price": "1"}]
    proven(1, 3_000)
    silent_ms = stage.frontier_ms("f")
    assert WALL_MS - 5_000 + 1_500 <= silent_ms <= WALL_MS - 5_000 + 3_000
    source.told = SourceState(1, None)  # gone
    stage.run(gateway, 60_000)
    source.told = SourceState(2, None)  # connected again, a replay runs
    stage.run(gateway, 10_000)
    still_ms = stage.frontier_ms("f")
    assert still_ms <= silent_ms + 1_000
    source.waiting = [{"symbol": "A", "ts": WALL_MS + 10_000, "price": "1"}]
    proven(2, 3_000)
    assert WALL_MS + 10_000 - 5_000 <= stage.frontier_ms("f") <= WALL_MS + 10_000 - 5_000 + 3_000


def test_a_source_that_cannot_be_opened_or_breaks_stops_nobody_and_is_tried_again(
    stage: Stage, read_frames: Any
) -> None:
    stage.declare("bad", "live", ["B"], source="missing")
    stage.declare("f", "live", source="net")
    gateway = stage.open()
    assert gateway.detail()["own_sources"]["bad"]["fault"] == "there is none"
    stage.opened[0].told = SourceState(1, stage.clock.monotonic_ms())
    stage.opened[0].breaks = True
    stage.run(gateway, 100)
    assert stage.opened[0].closed
    assert gateway.detail()["own_sources"]["f"]["fault"] == "it broke"
    stage.run(gateway, RETRY_MS + FEEDS_INTERVAL_MS)
    stage.opened[1].waiting = [{"symbol": "A", "ts": WALL_MS, "price": "1"}]
    stage.run(gateway, 200)
    assert gateway.detail()["feeds"]["f"]["accepted"] == 1
    assert stage.opened[1].order.first_position == SESSION_POSITIONS


def test_another_source_in_the_settings_replaces_the_old_one_as_another_connection(stage: Stage) -> None:
    stage.declare("f", "live", source="one")
    gateway = stage.open()
    source = stage.opened[0]
    source.waiting = [{"symbol": "A", "ts": WALL_MS, "price": "1"}]
    source.told = SourceState(1, stage.clock.monotonic_ms())
    stage.run(gateway, 200)
    for settings in ({"source": "two"}, {}):
        stage.store.rows["f"] = stage.store.rows["f"].__class__("f", 2, "live", settings, stage.store.rows["f"].lease)
        stage.run(gateway, FEEDS_INTERVAL_MS + 100)
    assert [(s.closed, s.order.first_position - SESSION_POSITIONS) for s in stage.opened] == [(True, 0), (True, 1)]
    assert gateway.detail()["own_sources"] == {}
    stage.opened[1].told = SourceState(1, stage.clock.monotonic_ms())
    found = [Heartbeat(frontier_ms=stage.frontier_ms("f"))]
    assert found[0].frontier_ms <= WALL_MS - 5_000 + 2 * (FEEDS_INTERVAL_MS + 300)
