"""The core: what is refused and how, what it becomes, and that its neighbours are not touched."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.dead_letter import MAX_RAW_BYTES, DeadLetter
from contracts.frames_pb2 import Control, PriceFrame
from contracts.keys import bucket_of
from feeds.domain.entry import SourceEntry
from feeds.domain.feed_settings import FeedSettings, FeedSettingsError, feed_settings
from feeds.domain.gateway_core import GatewayCore
from feeds.domain.pending_frame import CutFrame
from feeds.domain.recovered import RecoveredFeed
from feeds.sources.source import MAX_ENTRY_BYTES, read_json

WALL_MS = 1_767_607_200_000
INSTRUMENTS = {"AAA": 2, "BBB": 4, "TINY": 14, "BIG": 0}
GOOD = {"symbol": "AAA", "ts": WALL_MS, "price": "1.25"}


def new_core(
    live: bool = False, buckets: int = 4, instruments: dict[str, int] = INSTRUMENTS, **more: Any
) -> GatewayCore:
    feed = FeedSettings("f", buckets, live, **more)
    return GatewayCore(feed, 7, instruments, RecoveredFeed(), wall_ms=WALL_MS, monotonic_ms=1_000)


def raw_entries(raws: list[bytes], first: int = 0) -> list[SourceEntry]:
    return [SourceEntry("ticks.v1/0", first + i, read_json(raw), raw) for i, raw in enumerate(raws)]


def run(core: GatewayCore, bodies: list[Any]) -> tuple[list[CutFrame], list[DeadLetter]]:
    raws = [body if isinstance(body, bytes) else orjson.dumps(body) for body in bodies]
    for entry in raw_entries(raws):
        core.accept(entry, 1_000)
    return core.cut(1_000, everything=True), core.take_dead_letters()


def all_entries(frames: list[CutFrame], read_frames: Any) -> tuple[list[Any], int]:
    buckets, rejected = read_frames([frame.value for frame in frames], "f")
    return [entry for entries in buckets.values() for entry in entries], rejected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{not json", "unreadable"),
        (b"", "unreadable"),
        (b"\xff\xfe\x00", "unreadable"),
        (b'{"symbol":"AAA","ts":1,"price":"1","x":"\\ud800"}', "unreadable"),
        (b'{"symbol":"AAA","ts":NaN,"price":"1"}', "unreadable"),
        (b"[" * 2_000 + b"]" * 2_000, "unreadable"),
        (b'"' + b"x" * MAX_ENTRY_BYTES + b'"', "too_long"),
        ([1, 2], "not_an_object"),
        ("AAA", "not_an_object"),
        (None, "not_an_object"),
        (True, "not_an_object"),
        ({"type": "split", "symbol": "AAA"}, "unknown_type"),
        ({"type": ["tick"]}, "unknown_type"),
        ({"type": 5}, "unknown_type"),
        ({}, "bad_symbol"),
        (GOOD | {"symbol": None}, "bad_symbol"),
        (GOOD | {"symbol": ["AAA"]}, "bad_symbol"),
        (GOOD | {"symbol": {"a": {"b": [1]}}}, "bad_symbol"),
        (GOOD | {"symbol": 5}, "bad_symbol"),
        (GOOD | {"symbol": "NOSUCH"}, "unknown_symbol"),
        (GOOD | {"symbol": "aaa"}, "unknown_symbol"),
        (GOOD | {"symbol": " AAA"}, "unknown_symbol"),
        (GOOD | {"symbol": "ÄÄÄ📈"}, "unknown_symbol"),
        (GOOD | {"symbol": ""}, "unknown_symbol"),
        ({"symbol": "AAA", "price": "1"}, "bad_time"),
        (GOOD | {"ts": None}, "bad_time"),
        (GOOD | {"ts": True}, "bad_time"),
        (GOOD | {"ts": 1.5}, "bad_time"),
        (GOOD | {"ts": str(WALL_MS)}, "bad_time"),
        (GOOD | {"ts": "2026-01-05T10:00:00"}, "bad_time"),
        (GOOD | {"ts": "2026-02-30T10:00:00Z"}, "bad_time"),
        (GOOD | {"ts": WALL_MS * 1_000}, "bad_time"),
        (GOOD | {"ts": -1}, "bad_time"),
        (b'{"symbol":"AAA","ts":99999999999999999999999999,"price":"1"}', "bad_time"),
        (GOOD | {"seq": 0}, "bad_sequence"),
        (GOOD | {"seq": -1}, "bad_sequence"),
        (GOOD | {"seq": True}, "bad_sequence"),
        (GOOD | {"seq": 1.0}, "bad_sequence"),
        (GOOD | {"seq": "1"}, "bad_sequence"),
        (GOOD | {"seq": 2**63}, "bad_sequence"),
        (GOOD | {"seq": 1, "session": -1}, "bad_session"),
        (GOOD | {"seq": 1, "session": False}, "bad_session"),
        (GOOD | {"session": []}, "bad_session"),
        ({"symbol": "AAA", "ts": WALL_MS}, "not_plain_decimal"),
        (GOOD | {"price": 1.25}, "not_plain_decimal"),
        (GOOD | {"price": 1}, "not_plain_decimal"),
        (GOOD | {"price": "1e5"}, "not_plain_decimal"),
        (GOOD | {"price": "NaN"}, "not_plain_decimal"),
        (GOOD | {"price": "٣"}, "not_plain_decimal"),
        (GOOD | {"price": ["1"]}, "not_plain_decimal"),
        (GOOD | {"price": "0.00"}, "not_positive"),
        (GOOD | {"price": "1.001"}, "too_many_decimals"),
        (GOOD | {"price": "999999999999999999"}, "too_large"),
        ({"type": "marker"}, "bad_marker"),
        ({"type": "marker", "marker_id": 0}, "bad_marker"),
        ({"type": "marker", "marker_id": 2**63}, "bad_marker"),
        ({"type": "marker", "marker_id": True}, "bad_marker"),
        ({"type": "heartbeat"}, "bad_time"),
        ({"type": "heartbeat", "ts": "soon"}, "bad_time"),
    ],
)
def test_refused_input_is_dead_lettered_with_its_position_and_its_neighbours_flow(
    body: Any, reason: str, read_frames: Any
) -> None:
    before, after = GOOD | {"seq": 1}, GOOD | {"seq": 2, "price": "1.26"}
    frames, letters = run(new_core(), [before, body, after])
    entries, rejected = all_entries(frames, read_frames)
    assert [(letter.reason, letter.source, letter.position, letter.feed) for letter in letters] == [
        (reason, "ticks.v1/0", 1, "f")
    ]
    assert DeadLetter.model_validate_json(letters[0].model_dump_json()) == letters[0]
    assert [entry[3:5] for entry in entries if entry[0] == "tick" and entry[3]] == [(125, 1), (126, 2)]
    void_rows = [entry for entry in entries if entry[0] == "tick" and not entry[3]]
    assert rejected + len(void_rows) == 1


def test_a_refused_tick_with_a_sequence_goes_on_without_a_price_so_that_nothing_waits_for_it(read_frames: Any) -> None:
    bodies = [GOOD | {"seq": 1}, GOOD | {"seq": 2, "price": "0"}, GOOD | {"seq": 3, "session": 4, "ts": "never"}]
    frames, letters = run(new_core(), bodies)
    entries, rejected = all_entries(frames, read_frames)
    assert entries == [("tick", "AAA", WALL_MS, 125, 1, 0), ("tick", "AAA", 0, 0, 2, 0), ("tick", "AAA", 0, 0, 3, 4)]
    assert rejected == 0
    assert [letter.symbol for letter in letters] == ["AAA", "AAA"]


def test_rejects_count_in_the_bucket_of_their_symbol_and_in_bucket_0_without_one() -> None:
    frames, _ = run(new_core(buckets=8), [GOOD | {"symbol": "NOSUCH"}, b"rubbish", GOOD | {"price": "x"}])
    expected: dict[int, int] = {}
    for bucket in (bucket_of("NOSUCH", 8), 0, bucket_of("AAA", 8)):
        expected[bucket] = expected.get(bucket, 0) + 1
    assert {f.bucket: PriceFrame.FromString(f.value).rejected for f in frames} == expected


def test_payloads_are_bounded_in_dead_letters_and_stay_text() -> None:
    _, letters = run(new_core(), [b"\xff" + b"a" * (MAX_RAW_BYTES + 10)])
    assert letters[0].truncated
    assert letters[0].raw.startswith("\\xffaaa")
    assert len(letters[0].raw) == MAX_RAW_BYTES + 3


def test_scale_of_prices(read_frames: Any) -> None:
    """CASES "scale of prices": tiny and large prices exactly; of a hundred only the over-range row is refused."""
    bodies = [
        {"symbol": "TINY", "ts": WALL_MS, "price": "0.00000000000172"},
        {"symbol": "BIG", "ts": WALL_MS, "price": "700000.00"},
        *(
            {"symbol": "BBB", "ts": WALL_MS + i, "price": "1000000000000" if i == 50 else f"{i + 1}.0001"}
            for i in range(100)
        ),
    ]
    frames, letters = run(new_core(), bodies)
    entries, _ = all_entries(frames, read_frames)
    assert {e[3] for e in entries if e[1] in ("TINY", "BIG")} == {172, 700_000}
    assert sorted(e[3] for e in entries if e[1] == "BBB") == [(i + 1) * 10_000 + 1 for i in range(100) if i != 50]
    assert [letter.reason for letter in letters] == ["too_large"]


def test_poisoned_event_time_in_live_mode(read_frames: Any) -> None:
    """CASES "poisoned event time": a day ahead, one in microseconds, ten good ones."""
    core = new_core(live=True)
    wild = [GOOD | {"ts": WALL_MS + 86_400_000}, GOOD | {"ts": WALL_MS * 1_000}]
    frames, letters = run(core, [*wild, *(GOOD | {"ts": WALL_MS + i} for i in range(10))])
    entries, rejected = all_entries(frames, read_frames)
    assert [letter.reason for letter in letters] == ["ahead_of_clock", "bad_time"]
    assert [e[2] for e in entries] == [WALL_MS + i for i in range(10)]
    assert rejected == 2
    assert [frame.timestamp_ms for frame in frames] == [WALL_MS + 9]


def test_live_ticks_without_sequence_get_one_and_refused_ones_take_none(read_frames: Any) -> None:
    bodies = [GOOD, GOOD | {"price": "x"}, GOOD, {"symbol": "BBB", "ts": WALL_MS, "price": "1"}, GOOD]
    entries, _ = all_entries(run(new_core(live=True), bodies)[0], read_frames)
    assert sorted(e[1:2] + e[4:] for e in entries) == [("AAA", 1, 7), ("AAA", 2, 7), ("AAA", 3, 7), ("BBB", 1, 7)]


def test_sources_own_order_is_kept_and_a_replay_without_stays_without(read_frames: Any) -> None:
    entries, _ = all_entries(run(new_core(), [GOOD, GOOD | {"seq": 9, "session": 2}])[0], read_frames)
    assert [e[4:] for e in entries] == [(0, 0), (9, 2)]
    entries, _ = all_entries(run(new_core(live=True), [GOOD | {"seq": 9, "session": 2}])[0], read_frames)
    assert [e[4:] for e in entries] == [(9, 2)]


def test_a_live_feeds_clock_is_not_the_sources() -> None:
    _, letters = run(
        new_core(live=True),
        [{"type": "heartbeat", "ts": WALL_MS}, {"type": "flush"}, {"type": "marker", "marker_id": 3}],
    )
    assert [letter.reason for letter in letters] == ["not_in_live_mode", "not_in_live_mode"]


def test_controls_keep_their_place_in_every_bucket(read_frames: Any) -> None:
    core = new_core()
    symbols = ["AAA", "BBB", "TINY", "BIG"]
    ticks = [{"symbol": s, "ts": WALL_MS, "price": "1"} for s in symbols]
    for entry in raw_entries([orjson.dumps(b) for b in [*ticks, {"type": "heartbeat", "ts": WALL_MS}, *ticks]]):
        core.accept(entry, 1_000)
    core.accept_control(Control(), 1, 99, 1_000)  # a bucket that isn't there: nothing
    split = Control()
    split.split.symbol = "AAA"
    core.accept_control(split, 5, bucket_of("AAA", 4), 1_000)
    more = Control()
    more.instrument.symbol, more.instrument.decimals = "NEW", 3
    core.accept_control(more, 6, None, 1_000)
    for entry in raw_entries([orjson.dumps(b) for b in [{"type": "marker", "marker_id": 4}, {"type": "flush"}]], 9):
        core.accept(entry, 1_000)
    core.accept(raw_entries([orjson.dumps(GOOD | {"symbol": "NEW", "price": "0.001"})], 11)[0], 1_000)
    buckets, _ = read_frames([f.value for f in core.cut(1_000, everything=True)], "f")
    assert sorted(buckets) == [0, 1, 2, 3]
    for bucket, entries in buckets.items():
        own = [s for s in symbols if bucket_of(s, 4) == bucket]
        kinds = [e[0] if e[0] != "tick" else e[1] for e in entries]
        wanted = [*own, "heartbeat", *own]
        wanted += ["split"] if bucket == bucket_of("AAA", 4) else []
        wanted += ["instrument", "marker", "flush"] + (["NEW"] if bucket == bucket_of("NEW", 4) else [])
        assert kinds == wanted
        assert [e[1] for e in entries if e[0] in ("split", "instrument")] == ([5, 6] if "split" in kinds else [6])


def test_frames_are_cut_by_age_and_by_rows() -> None:
    core = new_core(buckets=1, frame_rows=3)
    for entry in raw_entries([orjson.dumps(GOOD)] * 4):
        core.accept(entry, 1_000)
    assert [frame.rows for frame in core.cut(1_049)] == [3]
    assert core.cut(1_049) == []
    assert [frame.rows for frame in core.cut(1_050)] == [1]
    assert core.cut(9_999) == []


def test_frames_are_larger_while_catching_up() -> None:
    core = new_core(buckets=1, frame_rows=3, catching_up_frame_rows=5, catching_up_frame_age_ms=70)
    core.cut(1_000, catching_up=True)
    for entry in raw_entries([orjson.dumps(GOOD)] * 6):
        core.accept(entry, 1_000)
    assert [frame.rows for frame in core.cut(1_069, catching_up=True)] == [5]
    assert [frame.rows for frame in core.cut(1_070, catching_up=True)] == [1]


def test_record_timestamps_are_event_times_held_to_the_rolling_jobs_bound() -> None:
    core = new_core(buckets=1, max_ahead_ms=1_000)
    stamps = []
    for position, ts in enumerate([WALL_MS, WALL_MS + 86_400_000, WALL_MS + 500]):
        core.accept(raw_entries([orjson.dumps(GOOD | {"ts": ts})], position)[0], 1_000)
        stamps += [frame.timestamp_ms for frame in core.cut(1_000, everything=True)]
    assert stamps == [WALL_MS, WALL_MS + 1_000, WALL_MS + 500]
    assert [f.timestamp_ms for f in run(new_core(), [b"rubbish"])[0]] == [1]


@pytest.mark.parametrize(
    ("mode", "stored"),
    [("later", {}), ("live", {"reorder_ms": "5"}), ("live", {"reorder_ms": True}), ("replay", {"frame_rows": 70_000})],
)
def test_wrong_settings_of_a_feed_are_named(mode: str, stored: dict[str, Any]) -> None:
    with pytest.raises(FeedSettingsError) as caught:
        feed_settings("f", 4, mode, stored)
    assert caught.value.feed == "f"
    assert caught.value.setting in str(caught.value)


ODD = st.one_of(
    st.sampled_from(
        ["AAA", "BBB", "1.25", "0", WALL_MS, 1, "2026-01-05T10:00:00Z", "tick", "heartbeat", "marker", None]
    ),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.booleans(),
    st.lists(st.integers(), max_size=2),
)
BODIES = st.one_of(
    st.dictionaries(st.sampled_from(["symbol", "ts", "price", "seq", "session", "type", "marker_id"]), ODD),
    st.builds(
        lambda s, t, p, q: {"symbol": s, "ts": WALL_MS + t, "price": f"{p}.5", "seq": q},
        st.sampled_from(["AAA", "BBB", "TINY", "BIG", "NOSUCH"]),
        st.integers(0, 99),
        st.integers(0, 9),
        st.none() | st.integers(1, 9),
    ),
)


@settings(max_examples=150, deadline=None)
@given(bodies=st.lists(BODIES, max_size=40), cuts=st.lists(st.integers(0, 40), max_size=6), rows=st.integers(1, 5))
def test_where_frames_are_cut_changes_no_buckets_entries(
    bodies: list[Any], cuts: list[int], rows: int, read_frames: Any
) -> None:
    whole, pieces = new_core(), new_core(frame_rows=rows)
    frames: list[CutFrame] = []
    for position, body in enumerate(bodies):
        entry = SourceEntry("p", position, body, b"raw")
        whole.accept(entry, 1_000)
        pieces.accept(entry, 1_000)
        if position in cuts:
            frames += pieces.cut(1_000, everything=True)
    frames += pieces.cut(1_000, everything=True)
    once = whole.cut(1_000, everything=True)
    assert read_frames([f.value for f in frames], "f") == read_frames([f.value for f in once], "f")
    assert pieces.take_dead_letters() == whole.take_dead_letters()
    assert whole.accepted + whole.rejected <= len(bodies)


@settings(max_examples=400, deadline=None)
@given(raw=st.binary(max_size=60) | BODIES.map(lambda b: orjson.dumps(str(b))[:50]))
def test_raw_bytes_become_a_dead_letter_or_an_entry_and_never_an_error(raw: bytes, read_frames: Any) -> None:
    core = new_core(live=True)
    frames, letters = run(core, [raw, GOOD])
    entries, _ = all_entries(frames, read_frames)
    assert len(letters) == 1 or any(entry[0] == "marker" for entry in entries)
    assert ("tick", "AAA", WALL_MS, 125, 1, 7) in entries
