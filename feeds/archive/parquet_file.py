"""One Parquet file of the archive: its columns, how they are packed, and how it comes to be all at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

ROW_GROUP_ROWS: Final = 131_072
ASIDE: Final = ".aside"  # suffix of a file that is being written
SCHEMA: Final = pa.schema([
    ("symbol", pa.dictionary(pa.int32(), pa.string())),
    ("event_time_ms", pa.int64()),
    ("price_scaled", pa.int64()),  # in units of 10^-decimals of the instrument, as the feed printed it
    ("sequence", pa.int64()),  # 0: the source has none
    ("session", pa.int64()),
    ("log_offset", pa.int64()),  # of its record of prices.v1, in the bucket's partition
])  # fmt: skip
_DELTAS: Final = ("event_time_ms", "price_scaled", "sequence", "log_offset")


class ArchiveDiskError(RuntimeError):
    """The folder can't be written; nothing is lost, the log is read again."""

    def __init__(self, folder: Path, error: OSError) -> None:
        super().__init__(f"archive folder {folder}: {error.strerror}; make room or set ALERTS_ARCHIVE_FOLDER")
        self.folder = folder


def make_table(symbols: Sequence[str], columns: Sequence[NDArray[np.int64]]) -> pa.Table:
    """Rows in log order -> rows by symbol, each symbol's in log order. columns: symbol's index, then as SCHEMA."""
    order = sorted(range(len(symbols)), key=symbols.__getitem__)
    rank = np.empty(len(symbols), np.int32)
    rank[order] = np.arange(len(symbols), dtype=np.int32)
    ranks = rank[columns[0]]
    rows = np.argsort(ranks, kind="stable")
    names = pa.array([symbols[index] for index in order], pa.string())
    arrays = [pa.DictionaryArray.from_arrays(pa.array(ranks[rows]), names)]
    arrays += [pa.array(column[rows]) for column in columns[1:]]
    return pa.table(arrays, schema=SCHEMA)


def merge_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables in log order -> one by symbol, each symbol's rows in log order."""
    whole = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    symbol = whole.column("symbol").chunk(0) if whole.num_rows else pa.array([], SCHEMA.field("symbol").type)
    names = symbol.dictionary.to_pylist()
    columns = [symbol.indices.to_numpy().astype(np.int64)]
    columns += [whole.column(name).to_numpy() for name in SCHEMA.names[1:]]
    # files of several days may overlap in the log; a record's rows of one day stay in their order
    rows = np.argsort(columns[-1], kind="stable")
    return make_table(names, [column[rows] for column in columns])


def write_table(table: pa.Table, path: Path) -> None:
    """Durable, and under its name only when it is whole. Raises ArchiveDiskError."""
    aside = path.with_name(path.name + ASIDE)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            pq.write_table(
                table,
                file,
                row_group_size=ROW_GROUP_ROWS,
                compression="zstd",
                compression_level=3,
                use_dictionary=["symbol", "session"],
                column_encoding=dict.fromkeys(_DELTAS, "DELTA_BINARY_PACKED"),
                data_page_version="2.0",
            )
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise ArchiveDiskError(path.parent, error) from None


def sync_folder(folder: Path) -> None:
    """Make the names in it durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_table(path: Path, symbol: str | None = None, from_ms: int = 0, to_ms: int = 1 << 62) -> pa.Table:
    """The whole file, or a symbol's rows in [from, to). Row groups that can't hold any are not read."""
    if symbol is None:
        return pq.read_table(path, schema=SCHEMA, partitioning=None)
    wanted = (
        (pc.field("symbol") == symbol) & (pc.field("event_time_ms") >= from_ms) & (pc.field("event_time_ms") < to_ms)
    )
    return pq.read_table(path, schema=SCHEMA, filters=wanted, partitioning=None)
