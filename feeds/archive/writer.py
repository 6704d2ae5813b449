"""The archive's process: reads prices.v1, writes Parquet files and each symbol's latest price."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

import structlog

from contracts.vocabulary import DAY_MS
from feeds.archive.accepted_ticks import AcceptedRows, BucketState
from feeds.archive.bucket import ArchiveBucket
from feeds.archive.compaction import plan_merge
from feeds.archive.file_name import ArchiveFile, around, bucket_folder, day_of
from feeds.archive.latest_prices import LatestPrices, LatestPriceStore
from feeds.archive.parquet_file import ASIDE, ArchiveDiskError, merge_tables, read_table, sync_folder, write_table
from feeds.archive.positions import ArchiveStateError, Positions, load_positions, save_positions
from feeds.ports import StoreAwayError
from ports.clock import Clock
from ports.message_log import LogReader

MAX_POLL_RECORDS: Final = 2_000
POLL_SECONDS: Final = 0.05
MAX_WAITING_ROWS: Final = 1_000_000  # 50 MB; then a flush comes before its time
LATEST_INTERVAL_MS: Final = 1_000
STORE_AWAY_REST_MS: Final = 10_000
TEND_INTERVAL_MS: Final = 1_000  # one bucket a time: merge, or delete what is over
GRACE_MS: Final = 60_000  # a reader that has listed a merged file may still open it
LATE_MS: Final = 3_600_000  # a day is merged for good so long after its end

log = structlog.get_logger()


class ArchiveWriter:
    """ports.service.Service. After any error it must be closed and opened anew; it goes on from its files."""

    def __init__(
        self,
        *,
        folder: Path,
        topic: str,
        reader: LogReader,
        latest: LatestPriceStore,
        clock: Clock,
        roll_ms: int = 60_000,
        retention_days: int = 0,
        step_point: Callable[[str], None] = lambda _: None,
    ) -> None:
        """topic: as Kafka names it. retention_days 0: everything is kept. step_point: told before each change on disk.

        Raises ArchiveStateError (another writer, or another topic's folder), ArchiveDiskError, LogError.
        """
        self._folder, self._topic, self._reader, self._latest, self._clock = folder, topic, reader, latest, clock
        self._roll_ms, self._retention_days, self._step_point = roll_ms, retention_days, step_point
        self._lock = _lock(folder)
        try:
            self._open()
        except BaseException:
            self._lock.close()
            raise

    def _open(self) -> None:
        for left in self._folder.rglob(f"*{ASIDE}"):
            left.unlink()
        stored = load_positions(self._folder, self._topic)
        ends, begins = self._reader.end_offsets(self._topic), self._reader.begin_offsets(self._topic)
        known = stored.offsets if stored else {}
        self._saved = known
        self._offsets = {partition: known.get(partition, begins[partition]) for partition in ends}
        for partition, offset in self._offsets.items():
            if offset > ends[partition]:
                raise ArchiveStateError(
                    self._folder, f"it is at {offset} of partition {partition}, the log ends earlier"
                )
        self._rows = AcceptedRows()
        for name, (lease, number, frontier_ms) in (stored.buckets if stored else {}).items():
            feed, _, bucket = name.rpartition("/")
            self._rows.buckets[feed, int(bucket)] = BucketState(lease, number, frontier_ms)
        self._reader.assign({(self._topic, partition): offset for partition, offset in self._offsets.items()})
        self._buckets: dict[tuple[str, int], ArchiveBucket] = {}
        self._sizes: dict[Path, int] = {}
        self._doomed: dict[Path, int] = {}  # when to delete, monotonic
        self._prices = LatestPrices()
        now_ms = self._clock.monotonic_ms()
        self._flushed_ms = self._priced_ms = self._tended_ms = now_ms
        self._turn: list[tuple[str, int]] = []
        self._counts = {"ticks": 0, "files": 0, "merges": 0, "deleted": 0}

    # -- the loop ---------------------------------------------------------------------------------
    def step(self) -> bool:
        """Read some records; write when it is time."""
        records = self._reader.poll(MAX_POLL_RECORDS, POLL_SECONDS)
        for record in records:
            ticks = self._rows.take(record.key, record.value)
            self._offsets[record.partition] = record.offset + 1
            if ticks is not None:
                self._bucket(ticks.feed, ticks.bucket).add(ticks, record.offset)
                self._prices.add(ticks, record.offset)
                self._counts["ticks"] += len(ticks.symbol)
        now_ms = self._clock.monotonic_ms()
        waiting = sum(bucket.rows for bucket in self._buckets.values())
        if now_ms - self._flushed_ms >= self._roll_ms or waiting >= MAX_WAITING_ROWS:
            self.flush()
        if now_ms - self._priced_ms >= LATEST_INTERVAL_MS:
            self._write_prices(now_ms)
        if len(records) < MAX_POLL_RECORDS and now_ms - self._tended_ms >= TEND_INTERVAL_MS:
            self._tended_ms = now_ms
            self._tend_next(now_ms)
        return bool(records)

    def _bucket(self, feed: str, number: int) -> ArchiveBucket:
        bucket = self._buckets.get((feed, number))
        if bucket is None:
            bucket = self._buckets[feed, number] = ArchiveBucket(bucket_folder(self._folder, feed, number))
            self._doom(bucket)
        return bucket

    # -- writing ----------------------------------------------------------------------------------
    def flush(self) -> None:
        """Each bucket's files, then the positions: whatever is there when this is cut off is known by its name."""
        self._flushed_ms = self._clock.monotonic_ms()
        if self._offsets == self._saved:
            return
        for bucket in self._buckets.values():
            files: list[ArchiveFile] = []
            for file, table in bucket.tables():
                self._step_point("write")
                write_table(table, bucket.folder / file.name)
                files.append(file)
            if files:
                self._sync(bucket.folder)
                self._counts["files"] += len(files)
            bucket.written(files)
        self._step_point("positions")
        positions = Positions(topic=self._topic, offsets=self._offsets, buckets=dict(self._rows.copy_state()))
        save_positions(self._folder, positions)
        self._saved = dict(self._offsets)

    def _sync(self, folder: Path) -> None:
        try:
            for part in (folder, folder.parent, self._folder):
                sync_folder(part)
        except OSError as error:
            raise ArchiveDiskError(folder, error) from None

    def _write_prices(self, now_ms: int) -> None:
        """A database that is away delays them, never the files."""
        self._priced_ms = now_ms
        prices = self._prices.take()
        if not prices:
            return
        try:
            self._latest.write(prices)
        except StoreAwayError as error:
            self._prices.give_back(prices)
            self._priced_ms = self._clock.monotonic_ms() + STORE_AWAY_REST_MS - LATEST_INTERVAL_MS
            log.warning("latest prices not written", error=str(error))

    # -- tending ----------------------------------------------------------------------------------
    def _tend_next(self, now_ms: int) -> None:
        if not self._turn:
            self._turn = [key for key in self._rows.buckets if bucket_folder(self._folder, *key).is_dir()]
        for path in [path for path, due_ms in self._doomed.items() if due_ms <= now_ms]:
            self._delete(path)
            del self._doomed[path]
        if self._turn:
            feed, number = self._turn.pop()
            bucket = self._bucket(feed, number)
            frontier_ms = self._rows.buckets[feed, number].frontier_ms
            self._drop_old(bucket, frontier_ms)
            self._merge(bucket, day_of(max(0, frontier_ms - LATE_MS)))

    def _merge(self, bucket: ArchiveBucket, over_before_day: int) -> None:
        sizes = {file: self._size(bucket.folder / file.name) for file in bucket.files}
        parts = plan_merge(bucket.files, sizes, over_before_day)
        if not parts:
            return
        whole = around(parts)
        table = merge_tables([read_table(bucket.folder / file.name) for file in parts])
        self._step_point("merge")
        write_table(table, bucket.folder / whole.name)
        self._sync(bucket.folder)
        bucket.merged([file for file in parts if file != whole], whole)
        self._sizes.pop(bucket.folder / whole.name, None)
        self._doom(bucket)
        self._counts["merges"] += 1

    def _doom(self, bucket: ArchiveBucket) -> None:
        due_ms = self._clock.monotonic_ms() + GRACE_MS
        self._doomed.update({bucket.folder / file.name: due_ms for file in bucket.superseded})
        bucket.superseded = []

    def _drop_old(self, bucket: ArchiveBucket, frontier_ms: int) -> None:
        """By the feed's own frontier: a wild tick of the year 9999 deletes nothing."""
        if not self._retention_days or not frontier_ms:
            return
        oldest = frontier_ms // DAY_MS - self._retention_days
        gone = [file for file in bucket.files if file.last_day < oldest]
        bucket.files = [file for file in bucket.files if file.last_day >= oldest]
        for file in gone:
            self._delete(bucket.folder / file.name)

    def _delete(self, path: Path) -> None:
        self._step_point("delete")
        path.unlink(missing_ok=True)
        self._sizes.pop(path, None)
        self._counts["deleted"] += 1

    def _size(self, path: Path) -> int:
        if path not in self._sizes:
            self._sizes[path] = path.stat().st_size
        return self._sizes[path]

    # -- told -------------------------------------------------------------------------------------
    def detail(self) -> dict[str, Any]:
        return {
            "positions": {str(partition): offset for partition, offset in self._offsets.items()},
            "waiting_rows": sum(bucket.rows for bucket in self._buckets.values()),
            "unreadable": self._rows.unreadable,
            "repeated_frames": self._rows.repeated,
            **self._counts,
        }

    def close(self) -> None:
        """What waits is read again by the next."""
        self._reader.close()
        self._latest.close()
        self._lock.close()


def _lock(folder: Path) -> IO[bytes]:
    """Held while this process lives: two writers would write every tick twice."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("wb")
    except OSError as error:
        raise ArchiveDiskError(folder, error) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ArchiveStateError(folder, "another process writes it") from None
    return file
