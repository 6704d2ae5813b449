"""The rolling core's edges: bad frames, fencing, routes, bounds of memory and of the state, versioned blobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contracts import frames_pb2 as pb
from contracts.keys import bucket_shard, hot_shard
from contracts.vocabulary import DAY_MS
from flink_jobs.domain.frame_error import FrameError
from flink_jobs.domain.history import MAX_CACHED_BLOCKS
from flink_jobs.domain.history_block import Block, BlockError, decode_block, encode_block, key_of
from flink_jobs.domain.rolling import RollingCore, RollingOutputs
from flink_jobs.domain.rolling_output import MAX_ROWS_PER_FRAME
from flink_jobs.domain.rolling_snapshot import JOURNAL_FRAMES, StateVersionError
from flink_jobs.domain.state import MemoryState
from tests.flink_jobs.domain.price_entries import (
    BUCKET,
    FEED,
    Entry,
    audit_entries,
    core_on,
    cut,
    frame_of,
    shard_entries,
)

GOLDEN = Path(__file__).parents[1] / "golden"
OWN = bucket_shard(FEED, BUCKET)
T0 = 1_700_000_000_000
INSTRUMENTS: list[Entry] = [pb.Control(instrument=pb.Instrument(symbol=name, decimals=2)) for name in ("AAA", "BBB")]


def _tick(sequence: int, at_ms: int, price: int = 10_000, name: str = "AAA", session: int = 0) -> Entry:
    return (name, T0 + at_ms, price, sequence, session)


def _broken_frames() -> dict[str, bytes]:
    good = pb.PriceFrame.FromString(frame_of([_tick(1, 0), _tick(2, 1)]))

    def changed(**fields: object) -> bytes:
        frame = pb.PriceFrame()
        frame.CopyFrom(good)
        for name, value in fields.items():
            setattr(frame, name, value)
        return frame.SerializeToString()

    placed = pb.PriceFrame()
    placed.CopyFrom(good)
    placed.controls.add(before_row=3, flush=pb.Flush())
    return {
        "not_protobuf": b"\xff\xff\xff",
        "column_length": changed(price_scaled=good.price_scaled[:-1]),
        "odd": changed(symbol_index=good.symbol_index[:-1]),
        "missing": changed(session=b""),
        "symbol_index": changed(symbol_index=b"\x00\x00\x01\x00"),
        "control_place": placed.SerializeToString(),
        "lease": changed(lease=1 << 63),
        "rejected": changed(rejected=(1 << 64) - 1),
        "other_feed": changed(feed="g"),
        "other_bucket": changed(bucket=3),
    }


@pytest.mark.parametrize("name", sorted(_broken_frames()))
def test_a_broken_frame_is_refused_and_leaves_no_trace(name: str) -> None:
    state = MemoryState()
    core = core_on(state)
    core.process(frame_of([*INSTRUMENTS, _tick(1, 0)]))
    before = dict(state.entries)
    with pytest.raises(FrameError, match="dead-letter it"):
        core.process(_broken_frames()[name])
    assert state.entries == before
    after = core.process(frame_of([_tick(2, 1_000)]))
    assert after == core_on(MemoryState(before)).process(frame_of([_tick(2, 1_000)]))


def test_unknown_symbols_are_counted_and_the_rest_goes_on() -> None:
    core = core_on(MemoryState())
    output = core.process(frame_of([_tick(1, 0, name="NOSUCH"), *INSTRUMENTS, _tick(1, 0), _tick(1, 0, name="NOSUCH")]))
    assert [entry[3] for entry in shard_entries([output])[OWN]] == ["AAA"]
    assert core.counts.rejected == 2
    assert pb.AuditEntry.FromString(audit_entries([output])[1][2]).reason == pb.AuditEntry.UNKNOWN_SYMBOL


def test_an_instrument_whose_name_no_matcher_takes_is_none() -> None:
    """Else the matcher would refuse every frame that it is in, and the good rows beside it."""
    core, name = core_on(MemoryState()), "A" * 256
    core.process(frame_of([*INSTRUMENTS, pb.Control(instrument=pb.Instrument(symbol=name, decimals=2))]))
    output = core.process(frame_of([_tick(1, 0, name=name), _tick(1, 0)]))
    assert [entry[3] for entry in shard_entries([output])[OWN]] == ["AAA"]


def test_a_lower_lease_is_over() -> None:
    core = core_on(MemoryState())
    core.process(frame_of([*INSTRUMENTS, _tick(1, 0)], lease=5))
    output = core.process(frame_of([_tick(2, 1), pb.Control(heartbeat=pb.Heartbeat(frontier_ms=T0 + 9))], lease=4))
    assert output.metrics == []
    assert pb.AuditEntry.FromString(audit_entries([output])[0][2]).reason == pb.AuditEntry.FENCED_LEASE
    assert core.counts == pb.Counts()
    assert len(core.process(frame_of([_tick(2, 1)], lease=5)).metrics) == 1


def test_a_frame_that_the_broker_kept_twice_counts_once() -> None:
    def numbered(number: int, sequence: int, lease: int = 5) -> bytes:
        frame = pb.PriceFrame.FromString(frame_of([_tick(sequence, sequence)], lease=lease))
        frame.frame_number, frame.rejected = number, 1
        return frame.SerializeToString()

    state = MemoryState()
    core = core_on(state)
    core.process(frame_of(INSTRUMENTS, lease=5))
    assert len(core.process(numbered(1, 1)).metrics) == 1
    for again in (core, core_on(state.copy())):  # also after a restore
        assert again.process(numbered(1, 1)) == RollingOutputs([], [])
        assert again.counts == pb.Counts(rejected=1)
    assert len(core.process(numbered(2, 2)).metrics) == 1
    assert len(core.process(numbered(1, 3, lease=6)).metrics) == 1  # a new lease begins anew
    assert core.counts == pb.Counts(rejected=3)


def test_the_gateways_rejections_are_counted() -> None:
    core = core_on(MemoryState())
    frame = pb.PriceFrame(feed=FEED, bucket=BUCKET, rejected=3, controls=[pb.Control(marker=pb.Marker(marker_id=1))])
    log = shard_entries([core.process(frame.SerializeToString())])[OWN]
    marker = pb.Control.FromString(log[0][3]).marker
    assert (marker.marker_id, marker.counts.rejected) == (1, 3)


def test_numbered_controls_apply_once() -> None:
    core = core_on(MemoryState())
    split = pb.Split(symbol="AAA", effective_from_ms=T0 + 5, new_shares=2, old_shares=1)
    entries = [*INSTRUMENTS, pb.Control(control_number=4, split=split), pb.Control(control_number=4, split=split)]
    other = pb.Split(symbol="AAA", effective_from_ms=T0 + 6, new_shares=2, old_shares=1)
    entries += [pb.Control(control_number=3, split=other), pb.Control(control_number=9, split=split)]
    assert len(shard_entries([core.process(frame_of(entries))])[OWN]) == 1


def test_a_hot_symbol_goes_to_all_its_shards_and_brings_its_splits() -> None:
    core = core_on(MemoryState())
    split = pb.Split(symbol="AAA", effective_from_ms=T0 + 5, new_shares=2, old_shares=1)
    route = pb.Routing(symbol="AAA", shards=2, version=1)
    entries = [*INSTRUMENTS, pb.Control(split=split), _tick(1, 0), pb.Control(routing=route), _tick(2, 1)]
    entries += [_tick(1, 1, name="BBB"), pb.Control(heartbeat=pb.Heartbeat(frontier_ms=T0))]
    log = shard_entries([core.process(frame_of(entries))])
    hot = [hot_shard(FEED, "AAA", 2, index) for index in range(2)]
    assert set(log) == {OWN, *hot}
    kinds = {shard: [_kind(entry) for entry in entries] for shard, entries in log.items()}
    assert kinds[OWN] == ["split", "AAA", "routing", "BBB", "heartbeat"]
    assert kinds[hot[0]] == kinds[hot[1]] == ["split", "routing", "AAA", "heartbeat"]
    assert log[hot[0]][2][8:10] == (10_000, T0), "the previous price comes along"


def test_a_symbol_routed_back_to_its_bucket_is_written_once() -> None:
    core = core_on(MemoryState())
    routes = [pb.Control(routing=pb.Routing(symbol="AAA", shards=n, version=n)) for n in (1, 2)]
    back = pb.Control(routing=pb.Routing(symbol="AAA", shards=1, version=3))
    log = shard_entries([core.process(frame_of([*INSTRUMENTS, routes[0], _tick(1, 0), routes[1], back, _tick(2, 1)]))])
    assert [_kind(entry) for entry in log[OWN]] == ["routing", "AAA", "routing", "routing", "AAA"]


def _kind(entry: tuple[object, ...]) -> object:
    if entry[2] == "tick":
        return entry[3]
    data = entry[3]
    assert isinstance(data, bytes)
    return pb.Control.FromString(data).WhichOneof("kind")


def test_a_large_release_becomes_several_records() -> None:
    core = core_on(MemoryState())
    core.process(frame_of(INSTRUMENTS))
    rows = 2 * MAX_ROWS_PER_FRAME + 1
    output = core.process(frame_of([*(_tick(n + 1, n) for n in range(rows)), pb.Control(flush=pb.Flush())]))
    assert len(output.metrics) == 3
    assert len(shard_entries([output])[OWN]) == rows + 1
    assert [record.timestamp_ms for record in output.metrics] == [T0 + 2_047, T0 + 4_095, T0 + 4_096]


def test_history_levels_off_and_the_cache_is_bounded() -> None:
    """Two years of a tick every 6 hours, in blocks of 100: what no window reaches leaves the state."""
    state = MemoryState()
    core = core_on(state, block_ticks=100)
    core.process(frame_of(INSTRUMENTS))
    blocks = []
    ticks = [_tick(n + 1, n * DAY_MS // 4, price=10_000 + n % 7) for n in range(2_920)]
    for frame in cut(ticks, [40]):
        core.process(frame)
        blocks.append(sum(name.startswith("h") for name in state.entries))
    history = core._memory.changes.history
    assert max(blocks) == blocks[-1] == 13  # (365 + 7) * 4 ticks in blocks of three frames, and the one being left
    assert history.first_block == 2_920 // 120 - 13
    assert len(history._cache) <= MAX_CACHED_BLOCKS
    assert sum(name.startswith("j") for name in state.entries) <= JOURNAL_FRAMES


def test_one_put_a_frame() -> None:
    class Counting(MemoryState):
        puts = 0

        def put(self, key: str, value: bytes) -> None:
            self.puts += 1
            super().put(key, value)

    state = Counting()
    core = core_on(state)
    core.process(frame_of(INSTRUMENTS))
    state.puts = 0
    frames = 2 * JOURNAL_FRAMES + 3
    for n in range(frames):
        core.process(frame_of([_tick(n + 1, n)]))
    assert state.puts == frames


@pytest.mark.parametrize("ticks", [1, 2, 500])
def test_blocks_come_back_exactly(ticks: int) -> None:
    random = np.random.default_rng(ticks)
    slots = np.sort(random.integers(0, 40, ticks))
    times = np.concatenate([np.sort(random.integers(0, 1 << 43, int(n))) for n in np.bincount(slots)])
    block = Block.of(key_of(slots, times), random.integers(1, 1 << 48, ticks))
    again = decode_block(encode_block(block))
    assert np.array_equal(again.keys, block.keys)
    assert np.array_equal(again.prices, block.prices)
    with pytest.raises(BlockError, match="version 9"):
        decode_block(b"\x09" + encode_block(block)[1:])
    with pytest.raises(BlockError, match="bytes"):
        decode_block(encode_block(block)[:-1])


def golden_frames() -> tuple[list[bytes], bytes]:
    """Frames whose state is stored in golden/, and the frame that is then processed on it."""
    route = pb.Routing(symbol="BBB", shards=2, version=1)
    split = pb.Split(symbol="AAA", effective_from_ms=T0 + 90_000, new_shares=3, old_shares=2)
    entries = [*INSTRUMENTS, pb.Control(control_number=1, split=split), pb.Control(control_number=2, routing=route)]
    for n in range(60):
        entries += [_tick(n + 1, n * 2_000, 10_000 + 37 * n % 101), _tick(n + 1, n * 2_000, 500 + n, "BBB")]
    entries += [_tick(63, 121_000), _tick(62, 121_500, price=0), _tick(5, 1_000)]
    after = [_tick(61, 121_000, 10_400), _tick(64, 190_000, 9_000), _tick(61, 191_000, 600, "BBB")]
    return list(cut(entries, [20])), frame_of([*after, pb.Control(heartbeat=pb.Heartbeat(frontier_ms=T0 + 200_000))])


def test_golden_state_of_version_1_goes_on() -> None:
    """State as version 1 wrote it (base, journal, sealed blocks). Never remade: a new version gets its own file."""
    with np.load(GOLDEN / "rolling-state-1.npz") as stored:
        state = MemoryState({name: stored[name].tobytes() for name in stored.files if not name.startswith("out-")})
        expected = [stored[name].tobytes() for name in sorted(stored.files) if name.startswith("out-")]
    assert {name[0] for name in state.entries} == {"b", "j", "h"}
    core = RollingCore(state, FEED, BUCKET, epoch=1, block_ticks=50)
    assert core.epoch == 7
    output = core.process(golden_frames()[1])
    assert [record.value for record in (*output.metrics, *output.audit)] == expected


@pytest.mark.parametrize("key", ["base", "j5"])
def test_newer_state_is_refused_by_name(key: str) -> None:
    state = MemoryState()
    core = core_on(state)
    for n in range(6):
        core.process(frame_of([*INSTRUMENTS, _tick(n + 1, n)]))
    state.entries[key] = b"\x63" + state.entries[key][1:]
    with pytest.raises(StateVersionError, match=f"'{key}'.*version"):
        core_on(state)


def test_a_damaged_base_is_refused() -> None:
    state = MemoryState()
    core_on(state).process(frame_of(INSTRUMENTS))
    state.entries["base"] = state.entries["base"][:-4]
    with pytest.raises(StateVersionError, match="damaged"):
        core_on(state)
