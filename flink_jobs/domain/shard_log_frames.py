"""Shard-log records taken apart and checked: what is wrong with one is found before any state is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from contracts import frames_pb2 as pb
from contracts.vocabulary import MAX_INTEGER, MAX_NAME_CHARACTERS, MAX_SCALED_PRICE, WINDOWS
from flink_jobs.domain.frame_error import FrameError
from flink_jobs.domain.threshold_keys import MAX_THRESHOLD, Int64s

_TICK_COLUMNS: Final = (
    "event_time_ms", "price_scaled", "sequence", "session", "previous_price_scaled", "previous_event_time_ms",
)  # fmt: skip
_BOUND_COLUMNS: Final = (
    "previous_floor_bps", "previous_negated_floor_bps", "current_floor_bps", "current_negated_floor_bps",
)  # fmt: skip
_REFERENCE_COLUMNS: Final = ("reference_time_ms", "reference_price_scaled")


@dataclass(frozen=True, slots=True)
class MetricRows:
    """A well-formed metric frame: n ticks, m changes in order of their tick, controls in order of their place."""

    epoch: int
    first_number: int
    symbols: Sequence[str]
    symbol_index: NDArray[np.intp]
    ticks: dict[str, Int64s]  # by _TICK_COLUMNS
    change_row: Int64s
    change_window: Int64s
    changes: dict[str, Int64s]  # by _BOUND_COLUMNS and _REFERENCE_COLUMNS
    controls: Sequence[pb.Control]

    def __len__(self) -> int:
        return len(self.symbol_index)

    @property
    def entries(self) -> int:
        """Tick rows and controls."""
        return len(self) + len(self.controls)


def parse_shard_log(record: bytes, shard: str) -> MetricRows | pb.CommandFrame:
    """Take a serialized ShardLogRecord of `shard` apart.

    Raises FrameError: not_protobuf, empty, other_shard, first_number, column_length, symbol_index, change_row,
    number_range, change_window, control_place, count, price, bounds, name.
    """
    log = pb.ShardLogRecord()
    try:
        log.ParseFromString(record)
    except DecodeError as error:
        raise FrameError("not_protobuf", str(error)) from error
    kind = log.WhichOneof("kind")
    if kind is None:
        raise FrameError("empty", "it is neither metrics nor commands")
    frame = log.metrics if kind == "metrics" else log.commands
    if frame.shard != shard:
        raise FrameError("other_shard", f"it is of {frame.shard!r}, this is {shard!r}")
    if frame.first_number < 1:
        raise FrameError("first_number", "numbers begin at 1")
    count = frame.count if kind == "metrics" else len(frame.commands)
    if frame.epoch > MAX_INTEGER or frame.first_number + count > MAX_INTEGER:
        raise FrameError("number_range", f"epoch {frame.epoch}, number {frame.first_number}: above {MAX_INTEGER}")
    return log.commands if kind == "commands" else _metric_rows(log.metrics)


def _column(frame: pb.MetricFrame, name: str, dtype: str, rows: int) -> NDArray[np.generic]:
    body = getattr(frame, name)
    if len(body) != rows * np.dtype(dtype).itemsize:
        raise FrameError("column_length", f"{name} has {len(body)} bytes for {rows} rows")
    return np.frombuffer(body, dtype)


def _metric_rows(frame: pb.MetricFrame) -> MetricRows:
    rows, changes = len(frame.symbol_index) // 2, len(frame.change_window)
    index = _column(frame, "symbol_index", "<u2", rows).astype(np.intp)
    if rows and int(index.max()) >= len(frame.symbols):
        raise FrameError("symbol_index", f"{index.max()} in a dictionary of {len(frame.symbols)} symbols")
    change_row = _column(frame, "change_row", "<u4", changes).astype(np.int64)
    window = _column(frame, "change_window", "u1", changes).astype(np.int64)
    if changes:
        if int(change_row[-1]) >= rows or (change_row[1:] < change_row[:-1]).any():
            raise FrameError("change_row", f"not in ascending order within {rows} ticks")
        if int(window.max()) >= len(WINDOWS):
            raise FrameError("change_window", f"{window.max()} of {len(WINDOWS)} windows")
    names = [*frame.symbols, *(control.split.symbol for control in frame.controls if control.HasField("split"))]
    names += [control.routing.symbol for control in frame.controls if control.HasField("routing")]
    if names and max(map(len, names)) > MAX_NAME_CHARACTERS:
        raise FrameError("name", f"a symbol has more than {MAX_NAME_CHARACTERS} characters")
    places = [control.before_row for control in frame.controls]
    if places and (places[-1] > rows or places != sorted(places)):
        raise FrameError("control_place", f"not in ascending order within {rows} ticks")
    if frame.count != rows + len(places):
        raise FrameError("count", f"says {frame.count} entries, has {rows} ticks and {len(places)} controls")
    ticks = {name: _column(frame, name, "<i8", rows).astype(np.int64, copy=False) for name in _TICK_COLUMNS}
    columns = {
        name: _column(frame, name, "<i8", changes).astype(np.int64, copy=False)
        for name in (*_BOUND_COLUMNS, *_REFERENCE_COLUMNS)
    }
    _check_values(ticks, columns, rows, changes)
    return MetricRows(
        frame.epoch, frame.first_number, frame.symbols, index, ticks, change_row, window, columns, frame.controls
    )


def _check_values(ticks: dict[str, Int64s], changes: dict[str, Int64s], rows: int, change_rows: int) -> None:
    if rows:
        price, previous = ticks["price_scaled"], ticks["previous_price_scaled"]
        if price.min() < 1 or previous.min() < 0 or max(price.max(), previous.max()) >= MAX_SCALED_PRICE:
            raise FrameError("price", f"outside 1 … {MAX_SCALED_PRICE - 1} (0: no previous one)")
    if change_rows:
        if any(
            column.min() < -MAX_THRESHOLD or column.max() > MAX_THRESHOLD
            for column in map(changes.get, _BOUND_COLUMNS)
            if column is not None
        ):
            raise FrameError("bounds", f"a floor is outside ±{MAX_THRESHOLD}")
        rises = changes["previous_floor_bps"] < changes["current_floor_bps"]
        if (rises & (changes["previous_negated_floor_bps"] < changes["current_negated_floor_bps"])).any():
            raise FrameError("bounds", "a change both rises and falls")
