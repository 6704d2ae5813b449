"""The service over a log and a store in memory: restarts, fences, many feeds, controls."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.dead_letter import DeadLetter
from contracts.frames_pb2 import Control, Heartbeat, Marker, PriceFrame
from contracts.keys import bucket_of
from feeds.gateway import FEEDS_INTERVAL_MS, MAX_CONTROLS, FeedGateway, Served
from feeds.memory_store import MemoryFeedStore
from feeds.sources.kafka_json import KafkaJsonSource
from ports.memory_log import MemoryLog
from ports.message_log import LogWriter

WALL_MS = 1_767_607_200_000
SYMBOLS = ["AAA", "BBB", "CCC", "DDD", "EEE"]
MAX_STEPS = 200


class CrashError(Exception):
    """The process is gone."""


class MortalWriter:
    """A writer whose every append is durable at once, and which dies before the one that its budget has no room for."""

    def __init__(self, log: MemoryLog, budget: int) -> None:
        self._log = log
        self._budget = budget

    def append(self, topic: str, key: bytes, value: bytes, timestamp_ms: int) -> None:
        if self._budget == 0:
            raise CrashError
        self._budget -= 1
        self._log.add([(topic, key, value, timestamp_ms)])

    def flush(self) -> None: ...

    def close(self) -> None: ...


class World:
    """A log, a store, a clock, and gateways over them."""

    def __init__(self, clock: Any, tick_partitions: int = 1) -> None:
        self.log = MemoryLog({"ticks.v1": tick_partitions, "prices.v1": 4, "dead-letters.v1": 1})
        self.store = MemoryFeedStore()
        self.clock = clock

    def declare(
        self, feed: str, mode: str = "replay", buckets: int = 4, symbols: list[str] = SYMBOLS, **more: Any
    ) -> None:
        self.store.declare_feed(feed, buckets, mode, **more)
        for symbol in symbols:
            self.store.declare_instrument(feed, symbol, 2)

    def send(self, *messages: Any) -> None:
        values = [m if isinstance(m, bytes) else orjson.dumps(m) for m in messages]
        keys = [str(m.get("symbol", "")).encode() if isinstance(m, dict) else b"" for m in messages]
        self.log.add([("ticks.v1", key, value, 0) for key, value in zip(keys, values, strict=True)])

    def open(self, writer: LogWriter | None = None, served: Served | None = None) -> FeedGateway:
        return FeedGateway(
            store=self.store,
            source=KafkaJsonSource(self.log.reader(), "ticks.v1", "ticks.v1", self.clock),
            writer=writer or self.log.writer(),
            prices=self.log.reader(),
            clock=self.clock,
            served=served or Served(),
        )

    def run(self, gateway: FeedGateway, elapsed_ms: int = 300, stride_ms: int = 60) -> FeedGateway:
        """Let time pass, a step at a time, at least until the source is empty."""
        for _ in range(MAX_STEPS):
            worked = gateway.step()
            self.clock.pass_ms(stride_ms)
            elapsed_ms -= stride_ms
            if elapsed_ms <= 0 and not worked:
                return gateway
        raise AssertionError("the gateway does not come to rest")

    def prices(self) -> list[bytes]:
        return [record.value for record in self.log.records("prices.v1")]

    def letters(self) -> list[DeadLetter]:
        return [DeadLetter.model_validate_json(record.value) for record in self.log.records("dead-letters.v1")]


def tick(symbol: str, n: int, **more: Any) -> dict[str, Any]:
    return {"symbol": symbol, "ts": WALL_MS + n, "price": f"{n + 1}.25", "seq": n + 1, **more}


def frontiers(entries: list[Any]) -> list[int]:
    return [Heartbeat.FromString(e[2]).frontier_ms for e in entries if e[0] == "heartbeat"]


@pytest.fixture
def world(clock: Any) -> World:
    return World(clock)


MESSAGES = st.lists(
    st.one_of(
        st.builds(tick, st.sampled_from([*SYMBOLS, "NOSUCH"]), st.integers(0, 50)),
        st.builds(lambda s, n: tick(s, n) | {"price": "x"}, st.sampled_from(SYMBOLS), st.integers(0, 50)),
        st.builds(lambda n: {"type": "heartbeat", "ts": WALL_MS + n}, st.integers(0, 50)),
        st.builds(lambda n: {"type": "marker", "marker_id": n}, st.integers(1, 50)),
        st.sampled_from([b"rubbish", {"type": "flush"}, {"symbol": 5}]),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=120, deadline=None)
@given(
    messages=MESSAGES,
    budgets=st.lists(st.integers(0, 30), max_size=6),
    saves=st.lists(st.booleans(), max_size=6),
    frame_rows=st.integers(1, 8),
)
def test_killed_between_any_two_appends_no_entry_is_lost_or_doubled(
    messages: list[Any], budgets: list[int], saves: list[bool], frame_rows: int, new_clock: Any, read_frames: Any
) -> None:
    calm, stormy = World(new_clock()), World(new_clock())
    calm.declare("f")
    stormy.declare("f", frame_rows=frame_rows)
    for world in (calm, stormy):
        world.send(*messages)
    calm.run(calm.open())
    for run, budget in enumerate(budgets):
        checkpoint_ms = 20_000 if run < len(saves) and saves[run] else 0
        try:
            gateway = stormy.open(MortalWriter(stormy.log, budget))
            stormy.clock.pass_ms(checkpoint_ms)  # then the first step writes one, with rows pending
            stormy.run(gateway)
        except CrashError:
            continue
    stormy.run(stormy.open())
    assert read_frames(stormy.prices(), "f") == read_frames(calm.prices(), "f")
    expected = {letter.position: letter for letter in calm.letters()}
    assert {letter.position: letter for letter in stormy.letters()} == expected


@settings(max_examples=40, deadline=None)
@given(messages=MESSAGES, budgets=st.lists(st.integers(0, 20), max_size=4))
def test_several_source_partitions_keep_every_symbols_order_through_kills(
    messages: list[Any], budgets: list[int], new_clock: Any, read_frames: Any
) -> None:
    calm, stormy = World(new_clock(), 3), World(new_clock(), 3)
    for world in (calm, stormy):
        world.declare("f")
        world.send(*messages)
    calm.run(calm.open())
    for budget in budgets:
        try:
            stormy.run(stormy.open(MortalWriter(stormy.log, budget)))
        except CrashError:
            continue
    stormy.run(stormy.open())

    def by_symbol(world: World) -> dict[Any, list[Any]]:
        found = defaultdict(list)
        for bucket, entries in read_frames(world.prices(), "f")[0].items():
            for entry in entries:
                found[bucket, entry[1] if entry[0] == "tick" else entry[0]].append(entry)
        return found

    assert by_symbol(stormy) == by_symbol(calm)


def test_unflushed_frames_are_read_again_by_the_next_gateway(world: World, read_frames: Any) -> None:
    world.declare("f", "live")
    world.send(*[{"symbol": "AAA", "ts": WALL_MS + n, "price": "1"} for n in range(5)])
    first = world.open()
    first.step()
    world.clock.pass_ms(20)
    del first  # its buffer with it
    world.send({"symbol": "AAA", "ts": WALL_MS + 5, "price": "1"})
    world.run(world.open())
    ticks = [e for e in read_frames(world.prices(), "f")[0][bucket_of("AAA", 4)] if e[0] == "tick"]
    assert [e[2] - WALL_MS for e in ticks] == [0, 1, 2, 3, 4, 5]
    assert [e[4:] for e in ticks] == [(n, 2) for n in range(1, 7)]  # a new session under the new lease


def test_a_gateway_that_wakes_late_is_fenced(world: World, read_frames: Any) -> None:
    world.declare("f")
    old = world.open()
    world.send(*[tick("AAA", n) for n in range(3)])
    world.run(old)
    world.send(*[tick("AAA", n) for n in range(3, 6)])
    old.step()  # accepted, not written
    new = world.open()
    world.send(*[tick("AAA", n) for n in range(6, 9)])
    world.clock.pass_ms(60)
    old.step()  # writes under its old lease behind the new one's fence
    lower = [f.lease for f in map(PriceFrame.FromString, world.prices()) if f.bucket == bucket_of("AAA", 4)]
    assert lower[-1] == 1
    assert 2 in lower
    world.run(new)
    ticks = [e for e in read_frames(world.prices(), "f")[0][bucket_of("AAA", 4)] if e[0] == "tick"]
    assert [e[4] for e in ticks] == list(range(1, 10))
    world.clock.pass_ms(1_000)
    old.step()
    assert old.detail()["lost"] == ["f"]
    frames = len(world.prices())
    world.send(tick("AAA", 9))
    world.run(old)
    assert len(world.prices()) == frames


def test_a_standby_takes_a_feed_whose_gateway_gives_no_sign_of_life(world: World, read_frames: Any) -> None:
    world.declare("f")
    standby = world.open()
    serving = world.open()
    for _ in range(8):  # longer than a takeover takes, had the other one died
        world.clock.pass_ms(10_000)
        serving.step()
        standby.step()
    assert standby.detail()["lost"] == ["f"]
    assert serving.detail()["feeds"]["f"]["lease"] == 2
    world.send(*[tick("AAA", n) for n in range(3)])
    for _ in range(5):  # nobody serves
        world.clock.pass_ms(10_000)
        standby.step()
    world.run(standby)
    assert standby.detail()["feeds"]["f"]["lease"] == 3
    ticks = [e for e in read_frames(world.prices(), "f")[0][bucket_of("AAA", 4)] if e[0] == "tick"]
    assert [e[4] for e in ticks] == [1, 2, 3]


def test_a_fence_of_a_gateway_that_died_at_once_is_respected(world: World, read_frames: Any) -> None:
    """Leases 1, 2 and 3: what 1 wrote behind 2's fence is void for the third gateway as for the rolling job."""
    world.declare("f", buckets=1)
    old = world.open()
    world.send(tick("AAA", 0))
    world.run(old)
    world.open()  # takes lease 2, fences, and is gone
    world.send(tick("AAA", 1))
    old.step()
    world.clock.pass_ms(60)
    old.step()
    world.run(world.open())
    entries = read_frames(world.prices(), "f")[0][0]
    assert [e[4] for e in entries] == [1, 2]


def test_a_checkpoint_shortens_the_scan_to_what_came_after(world: World, read_frames: Any) -> None:
    world.declare("f")
    world.send(*[tick("AAA", n) for n in range(3)])
    gateway = world.run(world.open())
    world.clock.pass_ms(10_000)
    gateway.step()
    for partition in range(4):
        world.log.truncate("prices.v1", partition, world.log.reader().end_offsets("prices.v1")[partition])
    world.send(tick("AAA", 3))
    world.run(world.open())
    entries = [e for entries in read_frames(world.prices(), "f")[0].values() for e in entries]
    assert [e[4] for e in entries] == [4]


def test_feeds_share_a_topic_and_one_feeds_clock_never_touches_anothers(world: World, read_frames: Any) -> None:
    world.declare("a", "live", symbols=["AAA"])
    world.declare("b", "live", symbols=["BBB"])
    gateway = world.open()
    world.send({"feed": "a", "symbol": "AAA", "ts": WALL_MS, "price": "1"})
    world.send({"feed": "b", "symbol": "BBB", "ts": WALL_MS - 3_600_000, "price": "1"})
    world.run(gateway, elapsed_ms=3_000)
    world.send({"feed": "b", "symbol": "AAA", "ts": WALL_MS, "price": "1"})
    world.run(gateway, elapsed_ms=3_000)
    for feed, newest_ms in (("a", WALL_MS), ("b", WALL_MS - 3_600_000)):
        for entries in read_frames(world.prices(), feed)[0].values():
            found = frontiers(entries)
            assert len(found) >= 5
            assert newest_ms - 5_000 <= found[0] < found[-1] <= newest_ms - 5_000 + 6_200
    assert [(letter.feed, letter.reason) for letter in world.letters()] == [("b", "unknown_symbol")]


def test_one_silent_symbol_does_not_stop_its_feeds_time(world: World, read_frames: Any) -> None:
    """CASES "one silent partition": AAA busy on one, BBB silent on another; BBB's bucket gets the frontier."""
    busy = World(world.clock, 3)
    busy.declare("f", "live")
    assert bucket_of("AAA", 4) != bucket_of("BBB", 4)
    gateway = busy.open()
    busy.send({"symbol": "BBB", "ts": WALL_MS, "price": "1"})
    for second in range(10):
        busy.send({"symbol": "AAA", "ts": WALL_MS + second * 1_000, "price": "1"})
        busy.run(gateway, elapsed_ms=1_000)
    silent = frontiers(read_frames(busy.prices(), "f")[0][bucket_of("BBB", 4)])
    assert silent[-1] >= WALL_MS + 8_000 - 5_000


def test_a_stopped_process_does_not_take_its_own_sleep_for_silence(world: World, read_frames: Any) -> None:
    world.declare("f", "live", buckets=1)
    gateway = world.open()
    world.send({"symbol": "AAA", "ts": WALL_MS, "price": "1"})
    world.run(gateway, elapsed_ms=2_500)
    world.clock.pass_ms(600_000)
    late = [{"symbol": "AAA", "ts": WALL_MS + 3_000 + n, "price": "1"} for n in range(9_000)]
    world.send(*late)
    gateway.step()
    world.clock.pass_ms(60)
    gateway.step()
    assert max(frontiers(read_frames(world.prices(), "f")[0][0])) <= WALL_MS + 3_000 + 8_999 - 5_000


def test_a_feed_made_at_run_time_is_served_from_its_first_message(world: World, read_frames: Any) -> None:
    world.declare("a")
    world.send({"feed": "late", "symbol": "AAA", "ts": WALL_MS, "price": "1"})
    gateway = world.run(world.open())
    assert [letter.reason for letter in world.letters()] == ["unknown_feed"]
    world.declare("late")
    world.send(*[tick("AAA", n, feed="late") for n in range(5)], tick("BBB", 0, feed="a"))
    world.run(gateway)
    entries = [e for entries in read_frames(world.prices(), "late")[0].values() for e in entries]
    assert [e[4] for e in entries] == [1, 2, 3, 4, 5]
    world.run(world.open())
    assert len([e for entries in read_frames(world.prices(), "late")[0].values() for e in entries]) == 5


@pytest.mark.parametrize("named", [True, False])
def test_the_controls_of_a_feed_made_at_run_time_come_before_its_first_tick(
    world: World, read_frames: Any, named: bool
) -> None:
    """Else the rolling job, which knows instruments by their controls alone, would reject that tick as unknown."""
    world.declare("a")
    gateway = world.open(served=None if named else Served(None, "late"))
    gateway.step()
    world.declare("late", symbols=["AAA"])
    new = Control()
    new.instrument.symbol, new.instrument.decimals = "AAA", 2
    for _ in range(MAX_CONTROLS + 1):  # more than are published at once
        world.store.add_control("late", new.SerializeToString(), bucket_of("AAA", 4))
    if not named:
        world.clock.pass_ms(FEEDS_INTERVAL_MS - 10)
        gateway.step()  # controls have just been asked for; feeds will be in the next step
        world.clock.pass_ms(10)
    world.send(tick("AAA", 0, **({"feed": "late"} if named else {})))
    world.run(gateway, stride_ms=20)
    entries = read_frames(world.prices(), "late")[0][bucket_of("AAA", 4)]
    assert [e[0] for e in entries] == ["instrument"] * (MAX_CONTROLS + 1) + ["tick"]


def test_a_known_feed_that_is_found_late_sets_the_source_back(world: World, read_frames: Any) -> None:
    """Its gateway went away; what passed meanwhile is fetched, and the other feed gets nothing twice."""
    world.declare("a")
    world.declare("b")
    world.run(world.open(served=Served(frozenset({"b"}))))
    row = world.store.rows.pop("b")
    gateway = world.open()
    world.send(*[tick("AAA", n, feed="a") for n in range(3)])
    world.run(gateway)
    world.store.rows["b"] = row
    more = [tick("AAA", n, feed="a") for n in range(3, 6)]
    world.send(more[0], *[tick("AAA", n, feed="b") for n in range(3)], *more[1:])
    world.run(gateway)
    for feed, count in (("a", 6), ("b", 3)):
        entries = [e for entries in read_frames(world.prices(), feed)[0].values() for e in entries]
        assert [e[4] for e in entries] == list(range(1, count + 1))


def test_messages_without_feed_belong_to_the_default_or_to_nobody(world: World, read_frames: Any) -> None:
    world.declare("a")
    world.declare("b")
    world.send(tick("AAA", 0), b"rubbish")
    world.run(world.open(served=Served(None, "b")))
    assert sum(len(entries) for entries in read_frames(world.prices(), "b")[0].values()) == 1
    assert [(letter.feed, letter.reason) for letter in world.letters()] == [("b", "unreadable")]
    nobody = World(world.clock)
    nobody.declare("a")
    nobody.declare("b")
    nobody.send(tick("AAA", 0), b"rubbish", {"feed": ["a"]})
    nobody.run(nobody.open())
    assert [letter.reason for letter in nobody.letters()] == ["unknown_feed", "unreadable", "unknown_feed"]
    listed = World(world.clock)
    listed.declare("a")
    listed.declare("b")
    listed.send(tick("AAA", 0), tick("AAA", 0, feed="b"), tick("AAA", 0, feed="zzz"))
    listed.run(listed.open(served=Served(frozenset({"a"}))))
    assert listed.letters() == []


def test_a_feed_with_wrong_settings_does_not_stop_the_others(world: World, read_frames: Any) -> None:
    world.declare("bad", reorder_ms="soon")
    world.declare("good")
    world.send(tick("AAA", 0, feed="bad"), tick("AAA", 0, feed="good"))
    gateway = world.run(world.open())
    assert list(gateway.detail()["refused"]) == ["bad"]
    assert sum(len(entries) for entries in read_frames(world.prices(), "good")[0].values()) == 1
    assert world.store.rows["bad"].lease == 0


def test_controls_are_numbered_published_in_order_and_marked_after(world: World, read_frames: Any) -> None:
    world.declare("f")
    gateway = world.run(world.open())
    new = Control()
    new.instrument.symbol, new.instrument.decimals = "NEW", 0
    split = Control()
    split.split.symbol = "AAA"
    world.store.add_control("f", new.SerializeToString())
    world.store.add_control("f", split.SerializeToString(), bucket_of("AAA", 4))
    world.store.add_control("f", b"\xff\xff not a control")
    world.run(gateway)
    assert world.store.unpublished("f") == []
    world.send({"symbol": "NEW", "ts": WALL_MS, "price": "7"})
    world.run(gateway)
    buckets = read_frames(world.prices(), "f")[0]
    for bucket, entries in buckets.items():
        numbers = [(e[0], e[1]) for e in entries if e[0] != "tick"]
        assert numbers == [("instrument", 1)] + ([("split", 2)] if bucket == bucket_of("AAA", 4) else [])
    assert [e[1:4] for e in buckets[bucket_of("NEW", 4)] if e[0] == "tick"] == [("NEW", WALL_MS, 7)]
    assert world.letters() == []


def test_a_control_that_was_written_to_some_buckets_is_repeated_under_its_number(
    world: World, read_frames: Any
) -> None:
    world.declare("f")
    settled = Control()
    settled.settings.reorder_ms = 9
    world.store.add_control("f", settled.SerializeToString())
    with pytest.raises(CrashError):
        world.open(MortalWriter(world.log, 4 + 2))  # four fences, two of four buckets
    assert world.store.unpublished("f") == [1]
    world.store.add_control("f", settled.SerializeToString())
    world.run(world.open())
    numbers = [[e[1] for e in entries] for entries in read_frames(world.prices(), "f")[0].values()]
    assert sorted(numbers) == [[1, 1, 2], [1, 1, 2], [1, 2], [1, 2]]
    assert world.store.unpublished("f") == []


def test_markers_pass_in_live_mode_and_the_first_record_of_every_bucket_is_there_at_once(
    world: World, read_frames: Any
) -> None:
    world.declare("f", "live", buckets=8)
    gateway = world.open()
    assert {PriceFrame.FromString(value).bucket for value in world.prices()} == set(range(8))
    world.send({"type": "marker", "marker_id": 5})
    world.run(gateway)
    for entries in read_frames(world.prices(), "f")[0].values():
        assert [Marker.FromString(e[2]).marker_id for e in entries] == [5]


def test_poison_rows_are_dead_letters_and_the_good_between_them_flow(world: World, read_frames: Any) -> None:
    """CASES "poison rows"."""
    world.declare("f")
    bad = [b"", b"{}", b"nul\x00l", b'{"symbol":{}}', b"[[[[", b'{"type":{}}', b"1e999", b'{"feed":5}', b'{"feed":{}}']
    good = [tick("AAA", n) for n in range(500)]
    world.send(*[m for n in range(500) for m in (bad[n % len(bad)], good[n])])
    world.run(world.open())
    entries = [e for entries in read_frames(world.prices(), "f")[0].values() for e in entries]
    assert [e[4] for e in entries] == list(range(1, 501))
    assert sorted(letter.position for letter in world.letters()) == [0] + [2 * n for n in range(1, 500)]
