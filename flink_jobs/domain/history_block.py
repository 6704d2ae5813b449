"""A sealed stretch of a bucket's history: some 20 000 ticks, symbol by symbol, as separately packed planes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray
from pcodec import ChunkConfig, standalone

from flink_jobs.domain.rolling_frames import Int64s

TIME_BITS: Final = 43
MAX_EVENT_TIME_MS: Final = 1 << TIME_BITS  # exclusive: the year 2248
MAX_SLOTS: Final = (1 << 20) - 1  # the last one is the sentinel's
_TIME_MASK: Final = MAX_EVENT_TIME_MS - 1
_NO_KEY: Final = (1 << 63) - 1  # its slot is none's, so it ends the last run
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<B3x6I")  # version; bytes of each plane


class BlockError(ValueError):
    """A sealed block that can't be read: state written by newer code, or damaged."""


def key_of(slot: Int64s, time_ms: Int64s) -> Int64s:
    """One integer that sorts as (slot, time)."""
    return (slot << TIME_BITS) | time_ms


@dataclass(frozen=True, slots=True)
class Block:
    """Ticks sorted by (slot, emitted order). `keys` has one sentinel more than `prices`."""

    keys: Int64s
    prices: Int64s

    @staticmethod
    def of(keys: Int64s, prices: Int64s) -> Block:
        """Block of sorted keys and their prices."""
        return Block(np.append(keys, _NO_KEY), prices)

    def __len__(self) -> int:
        return len(self.prices)

    def slots(self) -> Int64s:
        """Slot of each tick."""
        return self.keys[:-1] >> TIME_BITS

    def times_ms(self) -> Int64s:
        """Event time of each tick."""
        return self.keys[:-1] & _TIME_MASK


def _pack(plane: NDArray[np.int64]) -> bytes:
    return cast(bytes, standalone.simple_compress(plane, ChunkConfig()))


def _unpack(data: bytes) -> Int64s:
    plane = standalone.simple_decompress(data)
    return np.zeros(0, np.int64) if plane is None else cast(Int64s, plane)


def encode_block(block: Block) -> bytes:
    """Blob of a non-empty block: runs (slot steps, lengths), first times and prices, then the steps within runs."""
    slots, times, prices = block.slots(), block.times_ms(), block.prices
    starts = np.flatnonzero(np.diff(slots, prepend=-1))
    inner = np.ones(len(block), np.bool_)
    inner[starts] = False
    planes = [
        _pack(np.diff(slots[starts], prepend=0)),
        _pack(np.diff(np.append(starts, len(block)))),
        _pack(np.diff(times[starts], prepend=0)),
        _pack(np.diff(prices[starts], prepend=0)),
        _pack(np.diff(times, prepend=0)[inner]),
        _pack(np.diff(prices, prepend=0)[inner]),
    ]
    return _HEADER.pack(_VERSION, *map(len, planes)) + b"".join(planes)


def _undo_steps(first: Int64s, steps: Int64s, starts: Int64s, lengths: Int64s) -> Int64s:
    """Running values from each run's first value and the steps inside runs."""
    inner = np.ones(int(lengths.sum()), np.bool_)
    inner[starts] = False
    values = np.zeros(len(inner), np.int64)
    values[inner] = steps
    total = np.cumsum(values)
    shifted: Int64s = total + np.repeat(first - total[starts], lengths)
    return shifted


def decode_block(blob: bytes) -> Block:
    """The block of a blob. Raises BlockError for another version or a damaged blob."""
    if not blob or blob[0] != _VERSION:
        raise BlockError(f"history block of version {blob[0] if blob else None}; this code reads version {_VERSION}")
    sizes = _HEADER.unpack_from(blob)[1:]
    if len(blob) != _HEADER.size + sum(sizes):
        raise BlockError(f"history block has {len(blob)} bytes, its header says {_HEADER.size + sum(sizes)}")
    planes, at = [], _HEADER.size
    for size in sizes:
        planes.append(_unpack(blob[at : at + size]))
        at += size
    slot_steps, lengths, first_time_steps, first_price_steps, time_steps, price_steps = planes
    starts = np.cumsum(lengths) - lengths
    slots = np.repeat(np.cumsum(slot_steps), lengths)
    times = _undo_steps(np.cumsum(first_time_steps), time_steps, starts, lengths)
    prices = _undo_steps(np.cumsum(first_price_steps), price_steps, starts, lengths)
    return Block.of(key_of(slots, times), prices)
