"""The frame that a bucket is filling: ticks as columns, controls at their place among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from contracts.frames_pb2 import Control, PriceFrame
from contracts.keys import bucket_shard


class CutFrame(NamedTuple):
    """A finished frame on its way to prices.v1."""

    bucket: int
    key: bytes
    value: bytes
    timestamp_ms: int
    rows: int


class PendingFrame:
    """One bucket's unfinished frame. Columns are lists: an append costs 30 ns, a numpy write ten times that."""

    def __init__(self, feed: str, bucket: int, lease: int) -> None:
        self.bucket = bucket
        self.key = bucket_shard(feed, bucket).encode()
        self._feed = feed
        self._lease = lease
        self._frame_number = 0
        self.generation = 0
        self._begin()

    def _begin(self) -> None:
        self.generation += 1  # tells symbols that their index of the last frame is over
        self.symbols: list[str] = []
        self.symbol_index: list[int] = []
        self.event_time_ms: list[int] = []
        self.price_scaled: list[int] = []
        self.sequence: list[int] = []
        self.session: list[int] = []
        self.controls: list[tuple[int, Control]] = []
        self.rejected = 0
        self.newest_ms = 0
        self.since_ms: int | None = None  # monotonic; None: nothing is in it

    def add_control(self, control: Control) -> None:
        """Behind all ticks so far. The control is shared between buckets and not changed."""
        self.controls.append((len(self.event_time_ms), control))

    def cut(self, positions: Mapping[str, int], timestamp_ms: int) -> CutFrame:
        """Finish the frame and begin the next. positions: before these, everything of this bucket is in."""
        self._frame_number += 1
        frame = PriceFrame(
            feed=self._feed,
            bucket=self.bucket,
            lease=self._lease,
            frame_number=self._frame_number,
            symbols=self.symbols,
            symbol_index=np.array(self.symbol_index, "<u2").tobytes(),
            event_time_ms=np.array(self.event_time_ms, "<i8").tobytes(),
            price_scaled=np.array(self.price_scaled, "<i8").tobytes(),
            sequence=np.array(self.sequence, "<i8").tobytes(),
            session=np.array(self.session, "<i8").tobytes(),
            source_position=positions,
            rejected=self.rejected,
        )
        for before_row, control in self.controls:
            placed = frame.controls.add()
            placed.CopyFrom(control)
            placed.before_row = before_row
        rows = len(self.event_time_ms)
        self._begin()
        return CutFrame(self.bucket, self.key, frame.SerializeToString(), timestamp_ms, rows)
