"""Ticks from a CSV file: one row a tick, columns by name, times as epoch milliseconds or ISO 8601."""

from __future__ import annotations

import csv
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from contracts.dead_letter import Reason
from feeds.domain.entry import Refusal, SourceEntry
from feeds.sources.entry_file import EntryFileSource
from feeds.sources.plug_ins import SourceOrder
from feeds.sources.source import SourceError
from ports.clock import Clock


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """Which column holds what; a `fixed_symbol` stands for a symbol column.

    Without a column for sequence or session the gateway gives them. After the last row of a replay `flush_at_end`
    releases what reorder buffers hold.
    """

    event_time: str = "ts"
    price: str = "price"
    symbol: str = "symbol"
    fixed_symbol: str | None = None
    sequence: str | None = None
    session: str | None = None
    delimiter: str = ","
    flush_at_end: bool = False

    def columns(self) -> dict[str, str]:
        """Message field -> column."""
        wanted = {"symbol": self.symbol, "ts": self.event_time, "price": self.price}
        if self.fixed_symbol is not None:
            del wanted["symbol"]
        if self.sequence is not None:
            wanted["seq"] = self.sequence
        if self.session is not None:
            wanted["session"] = self.session
        return wanted


class CsvFileSource(EntryFileSource):
    """One partition, named after the file; a position is the row's number below the header, from 0."""

    def __init__(self, path: Path, layout: CsvLayout, clock: Clock, name: str | None = None) -> None:
        """name: of the partition; default: after the file. Raises SourceError when there is no such file or column."""
        self._path = path
        self._layout = layout
        super().__init__(name or f"csv:{path.name}", clock)

    def _read(self, position: int) -> Generator[SourceEntry, None, None]:
        rows = self._rows()
        header = next(rows, None)
        missing = [
            name for name in self._layout.columns().values() if not isinstance(header, list) or name not in header
        ]
        if missing:
            rows.close()
            raise SourceError(f"CSV source {self._path}: no column {', '.join(missing)}; name yours in the settings")
        assert isinstance(header, list)
        places = {field: header.index(name) for field, name in self._layout.columns().items()}
        entries = self._entries_of(rows, places)
        for _ in islice(entries, position):
            pass
        return entries

    def _rows(self) -> Generator[list[str] | Refusal, None, None]:
        """Rows, and a Refusal for each that is none. Blank lines are no rows."""
        try:
            file = self._path.open(newline="", encoding="utf-8-sig", errors="backslashreplace")
        except OSError as error:
            raise SourceError(f"CSV source {self._path}: {error.strerror}; check the source's path") from None
        with file:
            reader = csv.reader(file, delimiter=self._layout.delimiter)
            while True:
                try:
                    row = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield Refusal(Reason.UNREADABLE, f"no CSV row: {error}")
                    continue
                if row:
                    yield row

    def _entries_of(
        self, rows: Generator[list[str] | Refusal, None, None], places: Mapping[str, int]
    ) -> Generator[SourceEntry, None, None]:
        position = 0
        try:
            for row in rows:
                body = row if isinstance(row, Refusal) else self._body(row, places)
                raw = b"" if isinstance(row, Refusal) else self._layout.delimiter.join(row).encode()
                yield SourceEntry(self._name, position, body, raw)
                position += 1
        finally:
            rows.close()
        if self._layout.flush_at_end:
            yield SourceEntry(self._name, position, {"type": "flush"}, b"")

    def _body(self, row: list[str], places: Mapping[str, int]) -> dict[str, Any] | Refusal:
        if len(row) <= max(places.values()):
            return Refusal(Reason.UNREADABLE, f"{len(row)} columns, {max(places.values()) + 1} are needed")
        body: dict[str, Any] = {field: row[place].strip() for field, place in places.items()}
        if self._layout.fixed_symbol is not None:
            body["symbol"] = self._layout.fixed_symbol
        body["ts"] = _number_or_text(body["ts"])
        for field in ("seq", "session"):
            if field in body:
                body[field] = _number_or_text(body[field]) if body[field] else None
        return body


def _number_or_text(text: str) -> int | str:
    """Whole numbers as such; all else stays text, for the gateway to judge."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else text


class CsvSettings(BaseModel):
    """A CSV file as a feed's own source; the columns' names as in CsvLayout."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path
    event_time: str = "ts"
    price: str = "price"
    symbol: str = "symbol"
    fixed_symbol: str | None = None
    sequence: str | None = None
    session: str | None = None
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    flush_at_end: bool = False


class _Csv:
    settings = CsvSettings

    def open(self, settings: Any, order: SourceOrder) -> CsvFileSource:
        return CsvFileSource(settings.path, CsvLayout(**settings.model_dump(exclude={"path"})), order.clock, order.name)


CSV: Final = _Csv()
