"""The archive over a log in memory and a real folder: every accepted tick once, whatever is cut off, for any reader."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.frames_pb2 import Control, PriceFrame
from contracts.keys import bucket_of, bucket_shard
from contracts.vocabulary import DAY_MS
from feeds.archive.compaction import plan_merge
from feeds.archive.file_name import ArchiveFile, around, bucket_folder, list_files, read_name, split_superseded
from feeds.archive.latest_prices import LatestPrice
from feeds.archive.positions import ArchiveStateError
from feeds.archive.reader import ArchiveReader
from feeds.archive.writer import GRACE_MS, ArchiveWriter
from feeds.domain.pending_frame import PendingFrame
from feeds.ports import StoreAwayError
from ports.memory_log import MemoryLog

DAY0 = 20_458  # 2026-01-05
NOON_MS = DAY0 * DAY_MS + DAY_MS // 2
BUCKETS = 2
SYMBOLS = ["A", "B", "C", "D"]
COLUMNS = ("event_time_ms", "price_scaled", "sequence", "session")
Tick = tuple[str, int, int, int]  # symbol, event time, price, sequence


class MemoryPrices:
    """LatestPriceStore; a database that can be away."""

    def __init__(self) -> None:
        self.stored: dict[str, LatestPrice] = {}
        self.writes: list[int] = []
        self.away = False

    def write(self, prices: Sequence[LatestPrice]) -> None:
        if self.away:
            raise StoreAwayError("away")
        self.writes.append(len(prices))
        for price in prices:
            known = self.stored.get(price.symbol)
            if known is None or (known.event_time_ms, known.log_offset) < (price.event_time_ms, price.log_offset):
                self.stored[price.symbol] = price

    def close(self) -> None: ...


class Cut(Exception):
    """The process is gone."""


class Archive:
    """A log with one feed's frames, and writers over one folder."""

    def __init__(self, folder: Path, clock: Any) -> None:
        self.folder, self.clock = folder, clock
        self.log = MemoryLog({"prices.v1": 2})
        self.frames = {bucket: PendingFrame("f", bucket, 1) for bucket in range(BUCKETS)}
        self.prices = MemoryPrices()
        self.expected: list[Tick] = []
        self.cuts: Counter[str] = Counter()
        self.reader = ArchiveReader(folder)

    def send(self, ticks: Sequence[Tick], heartbeat_ms: int = 0) -> None:
        """One frame a bucket that has any."""
        for symbol, ts, price, sequence in ticks:
            frame = self.frames[bucket_of(symbol, BUCKETS)]
            if symbol not in frame.symbols:
                frame.symbols.append(symbol)
            frame.symbol_index.append(frame.symbols.index(symbol))
            frame.event_time_ms.append(ts)
            frame.price_scaled.append(price)
            frame.sequence.append(sequence)
            frame.session.append(1)
        self.expected += [tick for tick in ticks if tick[2] > 0]
        for frame in self.frames.values():
            if heartbeat_ms:
                control = Control()
                control.heartbeat.frontier_ms = heartbeat_ms
                frame.add_control(control)
            if frame.event_time_ms or frame.controls:
                self.put(frame.cut({}, 1).value)

    def put(self, value: bytes, key: bytes | None = None) -> None:
        frame = PriceFrame.FromString(value) if key is None else PriceFrame()
        self.log.add([("prices.v1", key or bucket_shard(frame.feed, frame.bucket).encode(), value, 1)])

    def open(self, cut_after: int | None = None, **more: Any) -> ArchiveWriter:
        """cut_after: how many changes on disk it lives to make."""
        left = cut_after

        def step_point(name: str) -> None:
            nonlocal left
            if left is not None:
                left -= 1
                if left < 0:
                    self.cuts[name] += 1
                    raise Cut

        return ArchiveWriter(
            folder=self.folder, topic="prices.v1", reader=self.log.reader(), latest=self.prices, clock=self.clock,
            step_point=step_point, **more,
        )  # fmt: skip

    def run(self, writer: ArchiveWriter, steps: int = 70, stride_seconds: int = 1) -> None:
        for _ in range(steps):
            self.clock.pass_ms(stride_seconds * 1_000)
            writer.step()

    def found(self) -> Counter[Tick]:
        rows: Counter[Tick] = Counter()
        for bucket in range(BUCKETS):
            for row in self.reader.bucket_table("f", bucket).to_pylist():
                rows[row["symbol"], row["event_time_ms"], row["price_scaled"], row["sequence"]] += 1
        return rows

    def files(self) -> list[ArchiveFile]:
        return [f for bucket in range(BUCKETS) for f in list_files(bucket_folder(self.folder, "f", bucket))]


@pytest.fixture
def archive(tmp_path: Path, clock: Any) -> Archive:
    return Archive(tmp_path / "archive", clock)


def series(symbol: str, count: int, at_ms: int = NOON_MS, stride_ms: int = 1_000) -> list[Tick]:
    return [(symbol, at_ms + n * stride_ms, 100 + n, n + 1) for n in range(count)]


def test_ticks_of_a_symbol_between_two_times_by_time(archive: Archive) -> None:
    archive.send([*series("A", 10), *series("B", 5)])
    archive.send([("A", NOON_MS - 5_000, 7, 11), ("A", NOON_MS, 0, 12)])  # late; refused by the gateway
    writer = archive.open()
    archive.run(writer)
    ticks = archive.reader.ticks("f", BUCKETS, "A", NOON_MS - 5_000, NOON_MS + 3_000)
    assert ticks.event_time_ms.tolist() == [NOON_MS - 5_000, NOON_MS, NOON_MS + 1_000, NOON_MS + 2_000]
    assert ticks.price_scaled.tolist() == [7, 100, 101, 102]
    assert ticks.sequence.tolist() == [11, 1, 2, 3]
    assert len(archive.reader.ticks("f", BUCKETS, "NONE", 0, 1 << 50)) == 0
    assert len(ArchiveReader(archive.folder / "nowhere").ticks("f", 2, "A", 0, 1 << 50)) == 0
    assert archive.found() == Counter(archive.expected)
    writer.close()


def test_frames_of_a_lower_lease_repeats_and_rubbish_count_as_for_the_rolling_job(archive: Archive) -> None:
    archive.send(series("A", 2))
    again = archive.log.records("prices.v1")[-1]
    archive.log.add([("prices.v1", again.key, again.value, 1)])  # what a restarted broker does
    archive.frames = {bucket: PendingFrame("f", bucket, 2) for bucket in range(BUCKETS)}
    archive.send([("A", NOON_MS + 9_000, 9, 3)])
    archive.log.add([("prices.v1", again.key, again.value, 1)])  # a gateway that is over
    for value in (
        b"\xff",
        PriceFrame(feed="f", bucket=bucket_of("A", 2), lease=9, event_time_ms=b"12345678").SerializeToString(),
    ):
        archive.put(value, again.key)
    own = {"feed": "f", "bucket": bucket_of("A", 2)}
    huge = PriceFrame(**own, lease=1 << 63)
    pointing = PriceFrame(**own, lease=9, symbol_index=b"\1\0", symbols=["A"], **dict.fromkeys(COLUMNS, bytes(8)))
    misplaced = PriceFrame(**own, lease=9, controls=[Control(before_row=1)])
    for frame in (huge, pointing, misplaced):
        archive.put(frame.SerializeToString(), again.key)
    hostile = PriceFrame(feed="../../f", bucket=0, lease=9)
    archive.put(hostile.SerializeToString(), bucket_shard("../../f", 0).encode())
    writer = archive.open()
    archive.run(writer)
    assert archive.found() == Counter(archive.expected)
    assert (writer.detail()["repeated_frames"], writer.detail()["unreadable"]) == (2, 6)
    writer.close()


BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from(SYMBOLS), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6),
    min_size=1,
    max_size=8,
)  # fmt: skip


LIVES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.sampled_from([1, 40])), max_size=8)


def test_cut_off_before_any_change_on_disk_no_tick_is_lost_doubled_or_taken_back(new_clock: Any) -> None:
    cuts: Counter[str] = Counter()

    @settings(max_examples=50, deadline=None, derandomize=True, database=None)
    @given(batches=BATCHES, lives=LIVES)
    def live_and_die(batches: list[list[tuple[str, int, int]]], lives: list[tuple[int, int, int]]) -> None:
        with tempfile.TemporaryDirectory() as name:
            archive = Archive(Path(name), new_clock())
            archive.cuts = cuts
            live_through(archive, batches, lives)

    live_and_die()
    for cut_after in range(6):  # files of a day that is over: they are merged, and deleted when nobody may read them
        with tempfile.TemporaryDirectory() as name:
            archive = Archive(Path(name), new_clock())
            archive.cuts = cuts
            batch = [(symbol, 0, 1) for symbol in SYMBOLS]
            live_through(archive, [batch, batch, batch], [(99, 2, 1), (99, 1, 1), (cut_after, 0, 40)])
    assert set(cuts) == {"write", "positions", "merge", "delete"}  # each was the last thing that never happened


def live_through(
    archive: Archive, batches: list[list[tuple[str, int, int]]], lives: list[tuple[int, int, int]]
) -> None:
    """One writer after another; after each death a reader looks."""
    sent = number = 0
    seen: Counter[Tick] = Counter()
    for cut_after, more, stride_seconds in [*lives, (None, len(batches), 1)]:
        for batch in batches[sent : sent + more]:
            ticks = []
            for symbol, day, price in batch:
                number += 1
                ticks.append((symbol, NOON_MS + day * DAY_MS, price, number))
            archive.send(ticks, NOON_MS + 2 * DAY_MS if number % 3 == 0 else 0)
        sent += more
        writer = None
        try:
            writer = archive.open(cut_after, roll_ms=2_000)
            archive.run(writer, 8, stride_seconds)
        except Cut:
            (archive.folder / "f" / "0000").mkdir(parents=True, exist_ok=True)
            (archive.folder / "f" / "0000" / "half.parquet.aside").write_bytes(b"PAR1 half of it")
        finally:
            if writer is not None:
                writer.close()
        found = archive.found()
        assert max(found.values(), default=1) == 1
        assert not found - Counter(archive.expected)
        assert not seen - found
        seen = found
    assert seen == Counter(archive.expected)
    assert not list(archive.folder.rglob("*.aside"))


def test_live_days_have_files_of_their_own_and_sparse_history_shares_them(archive: Archive) -> None:
    writer = archive.open()
    archive.send([*series("A", 3), ("A", NOON_MS + DAY_MS, 1, 9)])
    archive.run(writer)
    archive.send(series("A", 400, NOON_MS - 500 * DAY_MS, DAY_MS))
    archive.run(writer)
    days = [(file.first_day - DAY0, file.last_day - DAY0) for file in archive.files()]
    assert days == [(-500, -101), (0, 0), (1, 1)]
    assert archive.found() == Counter(archive.expected)
    writer.close()


def test_small_files_of_a_day_become_one_and_readers_never_see_the_difference(archive: Archive) -> None:
    writer = archive.open(roll_ms=1_000)
    for n in range(40):
        archive.send([(symbol, NOON_MS + n * 1_000, 100 + n, n + 1) for symbol in SYMBOLS], NOON_MS + n * 1_000)
        archive.run(writer, 1)
        assert not archive.found() - Counter(archive.expected)
    archive.run(writer, 10)
    assert writer.detail()["merges"] >= 1
    archive.send([], NOON_MS + DAY_MS)  # the day is over
    archive.run(writer, 5)
    assert archive.found() == Counter(archive.expected)
    archive.run(writer, GRACE_MS // 1_000 + 10)
    used = {bucket_of(symbol, BUCKETS) for symbol in SYMBOLS}
    assert len(archive.files()) == len(used)
    assert archive.found() == Counter(archive.expected)
    ticks = archive.reader.ticks("f", BUCKETS, "B", NOON_MS + 5_000, NOON_MS + 8_000)
    assert ticks.price_scaled.tolist() == [105, 106, 107]
    writer.close()


def test_retention_follows_the_feeds_frontier_not_a_wild_tick(archive: Archive) -> None:
    writer = archive.open(roll_ms=1_000, retention_days=10)
    archive.send([("A", NOON_MS - 20 * DAY_MS, 1, 1), ("A", NOON_MS, 2, 2), ("A", NOON_MS + 10_000 * DAY_MS, 3, 3)])
    archive.run(writer, 5)
    assert archive.found() == Counter(archive.expected)
    archive.send([], NOON_MS)
    archive.run(writer, 5)
    assert sorted(price for _, _, price, _ in archive.found()) == [2, 3]
    writer.close()


def test_latest_prices_are_the_newest_and_come_again_after_an_outage(archive: Archive) -> None:
    writer = archive.open()
    archive.prices.away = True
    archive.send([("A", NOON_MS, 1, 1), ("A", NOON_MS + 5, 2, 2), ("B", NOON_MS, 8, 1)])
    archive.send([("A", NOON_MS + 5, 3, 3), ("A", NOON_MS + 1, 4, 4)])
    archive.run(writer, 5)
    assert archive.prices.stored == {}
    archive.prices.away = False
    archive.run(writer, 20)
    assert {s: (p.event_time_ms - NOON_MS, p.price_scaled) for s, p in archive.prices.stored.items()} == {
        "A": (5, 3), "B": (0, 8),
    }  # fmt: skip
    assert archive.prices.writes == [2]  # nothing that has not moved
    writer.close()


def test_latest_prices_are_written_in_bounded_batches_longest_waiting_first(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feeds.archive.latest_prices.MAX_ROWS_A_WRITE", 3)
    writer = archive.open()
    for n in range(3):
        archive.send([(symbol, NOON_MS + n, n + 1, n + 1) for symbol in SYMBOLS])
        archive.run(writer, 1)
    archive.run(writer, 3)
    assert max(archive.prices.writes) == 3
    assert {price.price_scaled for price in archive.prices.stored.values()} == {3}
    writer.close()


def test_one_writer_a_folder_and_one_topic(archive: Archive, tmp_path: Path) -> None:
    archive.send(series("A", 2))
    writer = archive.open(roll_ms=1_000)
    with pytest.raises(ArchiveStateError, match="another process"):
        archive.open()
    archive.run(writer, 3)
    writer.close()
    shorter = Archive(archive.folder, archive.clock)
    with pytest.raises(ArchiveStateError, match="the log ends earlier"):
        shorter.open()
    (archive.folder / "positions.json").write_text("{")
    with pytest.raises(ArchiveStateError, match="not readable"):
        archive.open()
    (archive.folder / "positions.json").unlink()  # then it reads from the beginning, and writes nothing twice
    again = archive.open()
    archive.run(again)
    assert archive.found() == Counter(archive.expected)
    again.close()


def rectangles() -> Iterator[ArchiveFile]:
    for day in range(3):
        for first in range(0, 30, 10):
            yield ArchiveFile(DAY0 + day, DAY0 + day, first, first + 10)


def test_names_say_what_files_hold() -> None:
    for file in rectangles():
        assert read_name(file.name) == file
    for name in ("x.parquet", "2026-13-05_2026-01-05_000000000120-000000000240.parquet", ".lock"):
        assert read_name(name) is None


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(list(rectangles())), unique=True), st.integers(DAY0 - 1, DAY0 + 4), st.integers(1, 20_000)
)
def test_what_is_merged_is_exactly_what_the_new_name_claims(files: list[ArchiveFile], over: int, size: int) -> None:
    sizes = dict.fromkeys(files, size)
    parts = plan_merge(files, sizes, over)
    if parts:
        whole = around(parts)
        assert {file for file in files if file.meets(whole)} == set(parts)
        current, gone = split_superseded([*files, whole])
        assert set(gone) == set(parts)
        assert set(current) == (set(files) - set(parts)) | {whole}
    else:
        days = Counter(file.first_day for file in files if file.first_day < over)
        assert max(days.values(), default=0) <= 1


def test_a_tick_costs_few_bytes(archive: Archive) -> None:
    """Poisson times of one a second, a price that moves: far below the 48 bytes of six integers."""
    random = np.random.default_rng(1)
    for n in range(40):
        for symbol in SYMBOLS:
            gaps = np.maximum(1, random.exponential(1_000, 500)).astype(int).cumsum()
            prices = 10_000 + random.integers(-2, 3, 500).cumsum()
            archive.send([
                (symbol, NOON_MS + n * 500_000 + int(gap), int(price), n * 500 + k + 1)
                for k, (gap, price) in enumerate(zip(gaps, prices, strict=True))
            ])  # fmt: skip
    writer = archive.open()
    archive.run(writer)
    size = sum(path.stat().st_size for path in archive.folder.rglob("*.parquet"))
    assert size / len(archive.expected) < 4
    writer.close()
