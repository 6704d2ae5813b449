"""The archive as it is read: ticks of a symbol between two times. Safe while the writer writes, merges and deletes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contracts.keys import bucket_of
from feeds.archive.file_name import ArchiveFile, bucket_folder, day_of, list_files, split_superseded
from feeds.archive.parquet_file import SCHEMA, read_table

MAX_LISTINGS: Final = 5
T = TypeVar("T")


class ArchiveBusyError(RuntimeError):
    """Files went away faster than they could be read; try again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"archive folder {folder}: its files changed {MAX_LISTINGS} times while they were read")


@dataclass(frozen=True, slots=True)
class ArchivedTicks:
    """Columns of n ticks of one symbol, by event time, those of one time in the order of the log."""

    event_time_ms: NDArray[np.int64]
    price_scaled: NDArray[np.int64]  # as the feed printed it, not adjusted for splits
    sequence: NDArray[np.int64]  # 0: the source has none
    session: NDArray[np.int64]
    log_offset: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.event_time_ms)


class ArchiveReader:
    """Over an archive's folder. What came in the last roll interval is not in it yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ticks(self, feed: str, buckets: int, symbol: str, from_ms: int, to_ms: int) -> ArchivedTicks:
        """Every accepted tick of the symbol with from_ms <= event time < to_ms; empty when there is none.

        buckets: of the feed. Raises ArchiveBusyError.
        """
        folder = bucket_folder(self._folder, feed, bucket_of(symbol, buckets))

        def read(files: list[ArchiveFile]) -> pa.Table:
            wanted = [f for f in files if f.first_day <= day_of(to_ms - 1) and day_of(from_ms) <= f.last_day]
            wanted.sort(key=lambda f: (f.first_offset, f.first_day))
            return pa.concat_tables(
                [SCHEMA.empty_table(), *(read_table(folder / f.name, symbol, from_ms, to_ms) for f in wanted)]
            )

        table = _on_one_listing(folder, read)
        columns = [table.column(name).to_numpy() for name in SCHEMA.names[1:]]
        order = np.lexsort((columns[-1], columns[0]))
        return ArchivedTicks(*(column[order] for column in columns))

    def bucket_table(self, feed: str, bucket: int) -> pa.Table:
        """Everything of a bucket, file by file: for rebuilding and for checks."""
        folder = bucket_folder(self._folder, feed, bucket)
        return _on_one_listing(
            folder,
            lambda files: pa.concat_tables([SCHEMA.empty_table(), *(read_table(folder / f.name) for f in files)]),
        )


def _on_one_listing(folder: Path, read: Callable[[list[ArchiveFile]], T]) -> T:
    """A merged file stays for a minute; when even that was too short, the folder is listed anew."""
    for _ in range(MAX_LISTINGS):
        current, _ = split_superseded(list_files(folder))
        try:
            return read(current)
        except FileNotFoundError:
            continue
    raise ArchiveBusyError(folder)
