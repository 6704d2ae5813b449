"""A price frame taken apart and checked: what is wrong with its shape is found before any state is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from contracts import frames_pb2 as pb
from contracts.vocabulary import MAX_INTEGER
from flink_jobs.domain.frame_error import FrameError

Int64s: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

MAX_REJECTED: Final = 1 << 32  # of one frame, far above any: the total must fit for ever
_COLUMNS: Final = ("event_time_ms", "price_scaled", "sequence", "session")


class PriceFrameError(FrameError):
    """A record that is no price frame of this bucket; `reason` is a short code. Nothing of it was applied."""

    def __init__(self, reason: str, detail: str) -> None:
        ValueError.__init__(self, f"price frame refused ({reason}): {detail}; dead-letter it and go on")
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class PriceFrame:
    """A well-formed frame: equally long columns of n ticks, controls in order of their place."""

    lease: int
    frame_number: int  # 0: not numbered
    rejected: int
    symbols: Sequence[str]
    symbol_index: NDArray[np.intp]  # each < len(symbols)
    event_time_ms: Int64s
    price_scaled: Int64s
    sequence: Int64s
    session: Int64s
    controls: Sequence[pb.Control]  # sorted by before_row, each <= n

    def __len__(self) -> int:
        return len(self.symbol_index)


def read_price_frame(data: bytes, feed: str, bucket: int) -> PriceFrame:
    """Take a serialized PriceFrame of (feed, bucket) apart.

    Raises PriceFrameError: not_protobuf, other_bucket, number_range, column_length, symbol_index, control_place.
    """
    frame = pb.PriceFrame()
    try:
        frame.ParseFromString(data)
    except DecodeError as error:
        raise PriceFrameError("not_protobuf", str(error)) from error
    if frame.feed != feed or frame.bucket != bucket:
        raise PriceFrameError("other_bucket", f"it is of {frame.feed!r}/{frame.bucket}, this is {feed!r}/{bucket}")
    if max(frame.lease, frame.frame_number) > MAX_INTEGER or frame.rejected > MAX_REJECTED:
        found = f"lease {frame.lease}, frame {frame.frame_number}, {frame.rejected} rejected"
        raise PriceFrameError("number_range", found)
    rows, odd = divmod(len(frame.symbol_index), 2)
    lengths = {name: len(getattr(frame, name)) for name in _COLUMNS}
    if odd or any(length != rows * 8 for length in lengths.values()):
        raise PriceFrameError("column_length", f"symbol_index: {len(frame.symbol_index)} bytes, the others {lengths}")
    index = np.frombuffer(frame.symbol_index, "<u2").astype(np.intp)
    if rows and int(index.max()) >= len(frame.symbols):
        raise PriceFrameError("symbol_index", f"{index.max()} in a dictionary of {len(frame.symbols)} symbols")
    controls = sorted(frame.controls, key=lambda control: control.before_row) if frame.controls else ()
    if controls and controls[-1].before_row > rows:
        raise PriceFrameError("control_place", f"before row {controls[-1].before_row} of {rows}")
    times, prices, sequences, sessions = (np.frombuffer(getattr(frame, name), "<i8") for name in _COLUMNS)
    return PriceFrame(
        frame.lease, frame.frame_number, frame.rejected,
        frame.symbols, index, times, prices, sequences, sessions, controls,
    )  # fmt: skip
