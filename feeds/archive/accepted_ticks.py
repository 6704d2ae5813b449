"""Which rows of prices.v1 count: those that a frame of the bucket's newest lease brings for the first time.

The rule is the rolling core's (flink_jobs/domain/rolling.py): a frame of a lower lease than one before it is void, and
so is one whose number is at or below the last of its lease. What a gateway refused is a row without a price.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from contracts.event_time import MAX_EVENT_TIME_MS
from contracts.frames_pb2 import PriceFrame
from contracts.keys import bucket_shard
from contracts.vocabulary import MAX_INTEGER

Int64s = NDArray[np.int64]
_FEED: Final = re.compile("[a-z0-9][a-z0-9-]{0,30}", re.ASCII)  # it becomes a folder's name
_COLUMNS: Final = ("event_time_ms", "price_scaled", "sequence", "session")


@dataclass(slots=True)
class BucketState:
    """What is known of one bucket of a feed at a position of the log."""

    lease: int = 0
    frame_number: int = 0
    frontier_ms: int = 0


@dataclass(frozen=True, slots=True)
class AcceptedTicks:
    """Rows of one frame, in their order; `symbol` is an index into `symbols`."""

    feed: str
    bucket: int
    symbols: tuple[str, ...]
    symbol: NDArray[np.int64]
    event_time_ms: Int64s
    price_scaled: Int64s
    sequence: Int64s
    session: Int64s


@dataclass(slots=True)
class AcceptedRows:
    """Reads the records of whole partitions in their order."""

    buckets: dict[tuple[str, int], BucketState] = field(default_factory=dict)
    unreadable: int = 0
    repeated: int = 0
    _keys: dict[bytes, tuple[str, int]] = field(default_factory=dict)

    def take(self, key: bytes, value: bytes) -> AcceptedTicks | None:
        """The accepted rows of the next record; None when it has none. Anything may be in it; nothing raises."""
        frame = PriceFrame()
        try:
            frame.ParseFromString(value)
        except DecodeError:
            self.unreadable += 1
            return None
        rows = len(frame.symbol_index) // 2
        if not self._is_whole(frame, rows, key):
            self.unreadable += 1
            return None
        state = self.buckets.setdefault((frame.feed, frame.bucket), BucketState())
        if frame.lease < state.lease:
            self.repeated += 1
            return None
        if frame.lease > state.lease:
            state.lease, state.frame_number = frame.lease, 0
        if frame.frame_number and frame.frame_number <= state.frame_number:
            self.repeated += 1
            return None
        state.frame_number = max(state.frame_number, frame.frame_number)
        for control in frame.controls:
            if control.HasField("heartbeat"):
                state.frontier_ms = max(state.frontier_ms, min(control.heartbeat.frontier_ms, MAX_EVENT_TIME_MS))
        return _rows_of(frame) if rows else None

    def _is_whole(self, frame: PriceFrame, rows: int, key: bytes) -> bool:
        """As the rolling job judges a frame's shape: what it refuses as a whole is no frame here either."""
        if any(len(getattr(frame, name)) != rows * 8 for name in _COLUMNS) or len(frame.symbol_index) != rows * 2:
            return False
        if max(frame.lease, frame.frame_number) > MAX_INTEGER or any(c.before_row > rows for c in frame.controls):
            return False
        if rows and int(np.frombuffer(frame.symbol_index, "<u2").max()) >= len(frame.symbols):
            return False
        known = self._keys.get(key)
        if known is None:
            if not _FEED.fullmatch(frame.feed) or bucket_shard(frame.feed, frame.bucket).encode() != key:
                return False
            known = self._keys[key] = (frame.feed, frame.bucket)
        return known == (frame.feed, frame.bucket)

    def copy_state(self) -> Mapping[str, tuple[int, int, int]]:
        """`feed/bucket` -> (lease, frame number, frontier)."""
        return {
            f"{feed}/{bucket}": (state.lease, state.frame_number, state.frontier_ms)
            for (feed, bucket), state in self.buckets.items()
        }


def _rows_of(frame: PriceFrame) -> AcceptedTicks | None:
    symbol = np.frombuffer(frame.symbol_index, "<u2").astype(np.int64)
    times, prices, sequences, sessions = (np.frombuffer(getattr(frame, name), "<i8") for name in _COLUMNS)
    good = (prices > 0) & (times >= 0) & (times <= MAX_EVENT_TIME_MS)
    if not good.all():
        symbol, times, prices = symbol[good], times[good], prices[good]
        sequences, sessions = sequences[good], sessions[good]
    if not len(symbol):
        return None
    return AcceptedTicks(frame.feed, frame.bucket, tuple(frame.symbols), symbol, times, prices, sequences, sessions)
