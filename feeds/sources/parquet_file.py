"""Ticks from Parquet files: one row a tick, columns by name, read a batch at a time."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from feeds.domain.entry import SourceEntry
from feeds.sources.entry_file import EntryFileSource
from feeds.sources.plug_ins import SourceOrder
from feeds.sources.source import SourceError
from feeds.sources.tick_layout import to_ms
from ports.clock import Clock

BATCH_ROWS: Final = 8_192
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class ParquetSettings(BaseModel):
    """A file, or a folder whose *.parquet files are read by name. Columns are the messages' fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path
    symbol: str = "symbol"
    fixed_symbol: str | None = None
    ts: str = "ts"
    ts_unit: str = Field(default="ms", pattern="^(ms|s|us|ns|iso)$", description="of whole numbers and texts")
    price: str = "price"
    seq: str | None = None
    session: str | None = None
    take_floats: bool = Field(
        default=False, description="prices may be binary floats: each stands for its shortest decimal text"
    )
    naive_is_utc: bool = Field(default=False, description="timestamps without a zone are UTC")
    flush_at_end: bool = False

    def columns(self) -> dict[str, str]:
        """Message field -> column."""
        wanted = {"ts": self.ts, "price": self.price, "symbol": self.symbol, "seq": self.seq, "session": self.session}
        if self.fixed_symbol is not None:
            wanted["symbol"] = None
        return {field: column for field, column in wanted.items() if column is not None}


class ParquetFileSource(EntryFileSource):
    """One partition; a position is the row's number over all files in their order, from 0."""

    def __init__(self, settings: ParquetSettings, name: str, clock: Clock) -> None:
        """Raises SourceError when there is no such file, a column is missing, or one has a type that loses digits."""
        self._settings = settings
        self._files = _files(settings.path)
        self._rows = [self._check(path) for path in self._files]
        super().__init__(name, clock)

    def _check(self, path: Path) -> int:
        """Rows of a file that can be read."""
        try:
            with pq.ParquetFile(path) as file:
                schema, rows = file.schema_arrow, file.metadata.num_rows
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"Parquet source {path}: {type(error).__name__}, it is no readable file") from None
        for field, column in self._settings.columns().items():
            if schema.get_field_index(column) < 0:
                raise SourceError(f"Parquet source {path}: no column {column} for {field}; name yours in the settings")
        price, time = schema.field(self._settings.price).type, schema.field(self._settings.ts).type
        if pa.types.is_floating(price) and not self._settings.take_floats:
            raise SourceError(
                f"Parquet source {path}: prices are binary floats; store text or decimals, or take_floats"
            )
        if pa.types.is_timestamp(time) and time.tz is None and not self._settings.naive_is_utc:
            raise SourceError(f"Parquet source {path}: times have no zone; say naive_is_utc when they are UTC")
        return int(rows)

    def _read(self, position: int) -> Generator[SourceEntry, None, None]:
        first = 0
        for path, rows in zip(self._files, self._rows, strict=True):
            if first + rows > position:
                yield from self._read_file(path, first, position)
            first += rows
        if self._settings.flush_at_end and position <= first:
            yield SourceEntry(self._name, first, {"type": "flush"}, b"")

    def _read_file(self, path: Path, first: int, position: int) -> Generator[SourceEntry, None, None]:
        """Row groups that lie before the position are not read."""
        columns = self._settings.columns()
        with pq.ParquetFile(path) as file:
            groups: list[int] = []
            at = first
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if groups or at + rows > position:
                    groups.append(group)
                else:
                    at += rows
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=[*columns.values()]):
                values = [_plain(batch.column(column), self._settings.ts_unit) for column in columns.values()]
                for row in zip(*values, strict=True):
                    if at >= position:
                        yield SourceEntry(self._name, at, self._body(dict(zip(columns, row, strict=True))), _raw(row))
                    at += 1

    def _body(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._settings.fixed_symbol is not None:
            body["symbol"] = self._settings.fixed_symbol
        body["ts"] = to_ms(body["ts"], self._settings.ts_unit)
        body["price"] = None if body["price"] is None else str(body["price"])
        return body


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(path.glob("*.parquet"))
        if not found:
            raise SourceError(f"Parquet source {path}: no *.parquet in this folder")
        return found
    if not path.is_file():
        raise SourceError(f"Parquet source {path}: no such file")
    return [path]


def _plain(column: pa.Array, ts_unit: str) -> list[Any]:
    """Python values; timestamps as numbers in the settings' unit, decimals written out."""
    if pa.types.is_timestamp(column.type):
        unit = "ms" if ts_unit == "iso" else ts_unit
        ticks = column.cast(pa.int64()).to_pylist()
        return [None if tick is None else tick * _PER_SECOND[unit] // _PER_SECOND[column.type.unit] for tick in ticks]
    if pa.types.is_decimal(column.type):
        return [None if value is None else format(value, "f") for value in column.to_pylist()]
    if pa.types.is_floating(column.type):
        return [None if value is None else _shortest(value) for value in column.to_pylist()]
    return list(column.to_pylist())


def _shortest(value: float) -> str:
    """repr is the shortest text that reads back as this float; with an exponent it is written out."""
    text = repr(value)
    return format(Decimal(text), "f") if "e" in text and "n" not in text else text


def _raw(row: Sequence[Any]) -> bytes:
    return orjson.dumps(list(row), default=str)


class _Parquet:
    settings = ParquetSettings

    def open(self, settings: Any, order: SourceOrder) -> ParquetFileSource:
        return ParquetFileSource(settings, order.name, order.clock)


PARQUET: Final = _Parquet()
