"""A clock that moves when told, and frames read back as the rolling job reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from contracts.frames_pb2 import PriceFrame

Entry = tuple[Any, ...]


class SimulatedClock:
    """ports.clock.Clock."""

    def __init__(self) -> None:
        self.wall = 1_767_607_200_000  # 2026-01-05 10:00 UTC
        self.monotonic = 5_000_000

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def wait(self, seconds: float) -> None:
        self.pass_ms(int(seconds * 1000))

    def pass_ms(self, elapsed_ms: int) -> None:
        self.wall += elapsed_ms
        self.monotonic += elapsed_ms


def entries_of(frame: PriceFrame) -> list[Entry]:
    """Ticks and controls of one frame in their order."""
    columns = [
        np.frombuffer(getattr(frame, name), "<i8").tolist()
        for name in ("event_time_ms", "price_scaled", "sequence", "session")
    ]
    index = np.frombuffer(frame.symbol_index, "<u2").tolist()
    assert {len(column) for column in columns} == {len(index)}
    entries: list[Entry] = []
    controls = list(frame.controls)
    for row in range(len(index) + 1):
        while controls and controls[0].before_row == row:
            control = controls.pop(0)
            kind = control.WhichOneof("kind")
            entries.append((kind, control.control_number, getattr(control, kind).SerializeToString()))
        if row < len(index):
            entries.append(("tick", frame.symbols[index[row]], *(column[row] for column in columns)))
    assert not controls
    return entries


def read_buckets(values: Iterable[bytes], feed: str) -> tuple[dict[int, list[Entry]], int]:
    """Bucket -> entries, and how many were rejected beside them; frames of a lower lease than one before are void."""
    buckets: dict[int, list[Entry]] = {}
    leases: dict[int, int] = {}
    rejected = 0
    for value in values:
        frame = PriceFrame.FromString(value)
        if frame.feed != feed or frame.lease < leases.get(frame.bucket, 0):
            continue
        leases[frame.bucket] = frame.lease
        buckets.setdefault(frame.bucket, []).extend(entries_of(frame))
        rejected += frame.rejected
    return buckets, rejected


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture(scope="session")
def new_clock() -> Callable[[], SimulatedClock]:
    return SimulatedClock


@pytest.fixture(scope="session")
def read_frames() -> Callable[[Iterable[bytes], str], tuple[dict[int, list[Entry]], int]]:
    return read_buckets
