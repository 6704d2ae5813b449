"""One bucket's side of the archive: rows that wait to be written, and the files that are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contracts.vocabulary import DAY_MS
from feeds.archive.accepted_ticks import AcceptedTicks
from feeds.archive.file_name import ArchiveFile, list_files, split_superseded
from feeds.archive.parquet_file import make_table

MAX_DAYS_APART: Final = 8  # a live flush: today, yesterday around midnight, stragglers; each day has a file of its own
MIN_SPAN_ROWS: Final = 4_096  # a replay of old prices: consecutive days share a file until it has so many rows

Int64s = NDArray[np.int64]


@dataclass(slots=True)
class ArchiveBucket:
    """Opened over its folder: what an earlier writer has put there is known and not written again."""

    folder: Path
    rows: int = 0
    files: list[ArchiveFile] = field(default_factory=list)
    superseded: list[ArchiveFile] = field(default_factory=list)
    _written_to: int = 0  # offsets from here on are in no file
    _symbols: dict[str, int] = field(default_factory=dict)
    _chunks: list[tuple[Int64s, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files, self.superseded = split_superseded(list_files(self.folder))
        self._written_to = max((file.next_offset for file in self.files), default=0)

    def add(self, ticks: AcceptedTicks, log_offset: int) -> None:
        """Rows of the record at that offset; those that are in a file already are left out."""
        own = self._symbols
        ids = np.array([own.setdefault(symbol, len(own)) for symbol in ticks.symbols], np.int64)
        offsets = np.full(len(ticks.symbol), log_offset, np.int64)
        chunk = (
            ids[ticks.symbol], ticks.event_time_ms, ticks.price_scaled, ticks.sequence, ticks.session, offsets,
        )  # fmt: skip
        if log_offset < self._written_to:
            days = ticks.event_time_ms // DAY_MS
            fresh = np.ones(len(days), np.bool_)
            for file in self.files:
                if file.first_offset <= log_offset < file.next_offset:
                    fresh &= (days < file.first_day) | (days > file.last_day)
            chunk = tuple(column[fresh] for column in chunk)  # type: ignore[assignment]
        if len(chunk[0]):
            self._chunks.append(chunk)
            self.rows += len(chunk[0])

    def tables(self) -> Iterator[tuple[ArchiveFile, pa.Table]]:
        """What waits, as the files to write. They are noted by `written`, so a failure leaves everything as it was."""
        if not self._chunks:
            return
        columns = [np.concatenate(parts) for parts in zip(*self._chunks, strict=True)]
        days = columns[1] // DAY_MS
        symbols = list(self._symbols)
        for first_day, last_day in _spans(days):
            inside = (days >= first_day) & (days <= last_day)
            for file, part in self._apart(first_day, last_day, [column[inside] for column in columns]):
                yield file, make_table(*_used(symbols, part))

    def _apart(
        self, first_day: int, last_day: int, columns: list[Int64s]
    ) -> Iterator[tuple[ArchiveFile, list[Int64s]]]:
        """Rectangles that meet none that is there: after a crash amid a flush, what is lacking lies between files."""
        offsets = columns[-1]
        whole = ArchiveFile(first_day, last_day, int(offsets.min()), int(offsets.max()) + 1)
        if not any(file.meets(whole) for file in self.files):
            yield whole, columns
            return
        days = columns[1] // DAY_MS
        for day in np.unique(days).tolist():
            there = [file for file in self.files if file.first_day <= day <= file.last_day]
            cuts = np.array(sorted({cut for file in there for cut in (file.first_offset, file.next_offset)}), np.int64)
            stretch = np.searchsorted(cuts, offsets, side="right")
            for number in np.unique(stretch[days == day]).tolist():
                part = [column[(days == day) & (stretch == number)] for column in columns]
                yield ArchiveFile(day, day, int(part[-1].min()), int(part[-1].max()) + 1), part

    def written(self, files: list[ArchiveFile]) -> None:
        """Everything that waited is in these files now."""
        self.files = sorted([*self.files, *files])
        self._chunks = []
        self.rows = 0

    def merged(self, parts: list[ArchiveFile], whole: ArchiveFile) -> None:
        self.files = sorted([file for file in self.files if file not in parts] + [whole])
        self.superseded += parts


def _spans(days: Int64s) -> Iterator[tuple[int, int]]:
    found, counts = np.unique(days, return_counts=True)
    least_rows = 1 if len(found) <= MAX_DAYS_APART else MIN_SPAN_ROWS
    first, rows = None, 0
    for day, count in zip(found.tolist(), counts.tolist(), strict=True):
        first = day if first is None else first
        rows += count
        if rows >= least_rows:
            yield first, day
            first, rows = None, 0
    if first is not None:
        yield first, int(found[-1])


def _used(symbols: list[str], columns: list[Int64s]) -> tuple[list[str], list[Int64s]]:
    """Without the symbols that have no row."""
    used, index = np.unique(columns[0], return_inverse=True)
    return [symbols[number] for number in used.tolist()], [index.astype(np.int64), *columns[1:]]
