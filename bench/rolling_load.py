"""Price frames of the rolling bench: 1-minute prices of every symbol, with a history before each window's reach.

Time runs in minutes. The load is the minutes 0 … of every symbol; the history is, for each window longer than a
minute, a stretch of minutes that begins one window before, so that every cursor walks old blocks of its own while
the load is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from contracts import frames_pb2 as pb
from contracts.keys import bucket_of
from contracts.vocabulary import WINDOW_MS, WINDOWS

FEED: Final = "bench"
START_MS: Final = 1_767_607_200_000  # minute 0 of the load
MINUTE_MS: Final = 60_000
HISTORY_FRAME_ROWS: Final = 8_192  # what a gateway that catches up cuts
FIRST_PRICE: Final = 10_000  # 100.00
YEARLY_VOLATILITY: Final = 0.2
_DRIFT_MINUTES_KEPT: Final = 365 * 24 * 60


@dataclass(frozen=True)
class Phase:
    """One stretch of the load: so many minutes of every symbol, cut at so many ticks a frame."""

    minutes: int
    ticks_per_frame: int


@dataclass(frozen=True)
class RollingLoad:
    """Sizes; ticks are rounded down to whole minutes of all symbols."""

    symbols: int = 20_000
    buckets: int = 16
    history_ticks: int = 6_000_000
    large_ticks: int = 800_000
    large_frame: int = 64
    small_ticks: int = 400_000
    small_frame: int = 16
    disorder: float = 0.001  # share of ticks that come a minute early, behind a gap
    seed: int = 7

    def phases(self) -> tuple[Phase, Phase]:
        """First at the large frame, then at the small one."""
        return (
            Phase(max(1, self.large_ticks // self.symbols), self.large_frame),
            Phase(max(1, self.small_ticks // self.symbols), self.small_frame),
        )

    def stretches(self) -> list[tuple[int, int]]:
        """(first minute, minutes) of the history, oldest first: each a window before minute 0, none overlapping."""
        spans = sorted((WINDOW_MS[w] // MINUTE_MS for w in WINDOWS if WINDOW_MS[w] > MINUTE_MS), reverse=True)
        left = self.history_ticks // self.symbols
        stretches = []
        for at, span in enumerate(spans):
            room = span - (spans[at + 1] if at + 1 < len(spans) else 0)
            # the shortest windows hold less than a share of their own; give them theirs first
            rest = sum(min(left // len(spans), s) for s in spans[at + 1 :])
            minutes = max(0, min(room, left - rest))
            stretches.append((-span, minutes))
            left -= minutes
        return [stretch for stretch in stretches if stretch[1]]


class BucketFrames:
    """Frames of one bucket, made one after the other: instruments, history, then the phases of the load."""

    def __init__(self, load: RollingLoad, bucket: int) -> None:
        self.bucket = bucket
        names = (f"SYM{n:05}" for n in range(load.symbols))
        self._names = [name for name in names if bucket_of(name, load.buckets) == bucket]
        self._load = load
        self._rng = np.random.default_rng([load.seed, bucket])
        self._log_price = np.zeros(len(self._names))
        self._sequence = np.zeros(len(self._names), np.int64)
        self._frame_number = 0

    def history(self) -> Iterator[tuple[bytes, int, int]]:
        """(frame, its record timestamp, ticks): instruments first."""
        frame = self._frame()
        for name in self._names:
            frame.controls.add().instrument.CopyFrom(pb.Instrument(symbol=name, decimals=2))
        yield frame.SerializeToString(), START_MS - 2 * WINDOW_MS["1y"], 0
        for first, minutes in self._load.stretches():
            yield from self._stretch(first, minutes, HISTORY_FRAME_ROWS)

    def phase(self, first_minute: int, phase: Phase) -> Iterator[tuple[bytes, int, int]]:
        """As `history`; phases are asked for in order."""
        yield from self._stretch(first_minute, phase.minutes, phase.ticks_per_frame)

    def marker(self, marker_id: int) -> bytes:
        """A frame that holds only a marker."""
        frame = self._frame()
        frame.controls.add().marker.marker_id = marker_id
        record: bytes = frame.SerializeToString()
        return record

    def _stretch(self, first_minute: int, minutes: int, rows: int) -> Iterator[tuple[bytes, int, int]]:
        """Chunks of whole minutes, so that memory stays small; frames end where chunks do."""
        width = len(self._names)
        chunk = max(2, -(-4 * max(rows, 4_096) // max(width, 1)))
        for begin in range(0, minutes, chunk):
            yield from self._chunk(first_minute + begin, min(chunk, minutes - begin), rows)

    def _chunk(self, first_minute: int, minutes: int, rows: int) -> Iterator[tuple[bytes, int, int]]:
        width, rng = len(self._names), self._rng
        steps = rng.normal(0.0, YEARLY_VOLATILITY / _DRIFT_MINUTES_KEPT**0.5, (minutes, width))
        walked = self._log_price + np.cumsum(steps, axis=0)
        self._log_price = walked[-1]
        price = np.maximum(1, np.rint(FIRST_PRICE * np.exp(walked))).astype(np.int64)
        sequence = self._sequence + np.arange(1, minutes + 1)[:, None]
        self._sequence = sequence[-1].copy()
        minute_ms = START_MS + (first_minute + np.arange(minutes, dtype=np.int64)) * MINUTE_MS
        time = np.repeat(minute_ms[:, None], width, axis=1)
        index = np.repeat(rng.permutation(width)[None, :], minutes, axis=0)
        self._swap(minutes, (price, sequence, time))
        columns = [np.take_along_axis(c, index, axis=1).ravel() for c in (time, price, sequence)]
        flat = index.ravel()
        for begin in range(0, len(flat), rows):
            yield self._ticks(flat[begin : begin + rows], *(c[begin : begin + rows] for c in columns))

    def _swap(self, minutes: int, columns: tuple[NDArray[np.int64], ...]) -> None:
        """Some ticks change places with the symbol's next one."""
        pairs = minutes // 2
        early = self._rng.random((pairs, len(self._names))) < self._load.disorder
        pair, slot = early.nonzero()
        for column in columns:
            first, second = column[2 * pair, slot].copy(), column[2 * pair + 1, slot].copy()
            column[2 * pair, slot], column[2 * pair + 1, slot] = second, first

    def _ticks(
        self, index: NDArray[np.int64], time: NDArray[np.int64], price: NDArray[np.int64], sequence: NDArray[np.int64]
    ) -> tuple[bytes, int, int]:
        used, place = np.unique(index, return_inverse=True)
        frame = self._frame()
        frame.symbols.extend(self._names[n] for n in used.tolist())
        frame.symbol_index = place.astype("<u2").tobytes()
        frame.event_time_ms, frame.price_scaled = time.tobytes(), price.tobytes()
        frame.sequence, frame.session = sequence.tobytes(), np.ones(len(index), np.int64).tobytes()
        return frame.SerializeToString(), int(time.max()), len(index)

    def _frame(self) -> pb.PriceFrame:
        self._frame_number += 1
        return pb.PriceFrame(feed=FEED, bucket=self.bucket, lease=1, frame_number=self._frame_number)
