"""What one record changed, as one state entry in a ring; and the counters that go on from record to record.

Entry: `<version u1><7 zero bytes><counters 11 × i8>`, then five sections, each `<bytes u8>` and its body: symbols and
splits in the order learnt, how far symbols have come (tick_times.py), installed rules, rows taken out, tombstones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from flink_jobs.domain.frame_error import StateError
from flink_jobs.domain.price_basis import Split
from flink_jobs.domain.rule_pages import COLUMNS
from flink_jobs.domain.state import StateMap
from flink_jobs.domain.threshold_keys import Int64s

JOURNAL_VERSION: Final = 2
JOURNAL_VERSION_WITHOUT_SEAMS: Final = 1
JOURNAL_RECORDS: Final = 256  # ring: so many records at most are replayed after a restore
JOURNAL_BYTES: Final = 4 << 20  # entries between two folds
HEADER_VERSION: Final = 1
HEADER_KEY: Final = "header"
_COUNTERS: Final = struct.Struct("<11q")
_LENGTH: Final = struct.Struct("<Q")
_LEARNT: Final = struct.Struct("<BHIqQQ")  # 0 symbol / 1 split, bytes of the name, symbol number, split
_PRELUDE: Final = 8
SEEN_COLUMNS: Final = 4


@dataclass(slots=True)
class Counters:
    """Where a shard stands after a record."""

    record: int = 0  # records that changed anything
    position: int = 0  # entries of the shard log applied
    epoch: int = 0  # of candidates.v1
    number: int = 0  # last one emitted
    metrics_epoch: int = 0
    metrics_number: int = 0
    commands_epoch: int = 0
    commands_number: int = 0
    newest_ms: int = 0  # of ticks and heartbeats
    first_tombstone: int = 0
    next_tombstone: int = 0

    def encode(self) -> bytes:
        """As 11 little-endian i8."""
        return _COUNTERS.pack(*(getattr(self, name) for name in self.__slots__))

    @classmethod
    def decode(cls, blob: bytes, at: int) -> Counters:
        """Of bytes at an offset."""
        return cls(*_COUNTERS.unpack_from(blob, at))


@dataclass(slots=True)
class Changes:
    """What one record changed beside the counters."""

    learnt: list[str | tuple[int, Split]]  # a symbol's name, or (symbol number, split)
    seen: Int64s = field(default_factory=lambda: np.zeros((SEEN_COLUMNS, 0), np.int64))  # TickTimes.columns
    installed: Int64s = field(default_factory=lambda: np.zeros((COLUMNS, 0), np.int64))
    removed: Int64s = field(default_factory=lambda: np.zeros((2, 0), np.int64))  # places, rows
    buried: Int64s = field(default_factory=lambda: np.zeros((0, 3), np.int64))


def journal_key(record: int) -> str:
    """State key of a record's entry."""
    return f"journal/{record % JOURNAL_RECORDS:x}"


def encode_entry(counters: Counters, changes: Changes) -> bytes:
    """One entry's bytes."""
    sections = [
        b"".join(map(_encode_learnt, changes.learnt)),
        changes.seen.astype("<i8", copy=False).tobytes(),
        changes.installed.astype("<i8", copy=False).tobytes(),
        changes.removed.astype("<u4").tobytes(),
        changes.buried.astype("<i8", copy=False).tobytes(),
    ]
    parts = [bytes([JOURNAL_VERSION]).ljust(_PRELUDE, b"\0"), counters.encode()]
    for section in sections:
        parts += (_LENGTH.pack(len(section)), section)
    return b"".join(parts)


def _encode_learnt(learnt: str | tuple[int, Split]) -> bytes:
    if isinstance(learnt, str):
        name = learnt.encode()
        return _LEARNT.pack(0, len(name), 0, 0, 0, 0) + name
    number, split = learnt
    return _LEARNT.pack(1, 0, number, split.effective_from_ms, split.new_shares, split.old_shares)


def decode_entry(blob: bytes, name: str) -> tuple[Counters, Changes]:
    """An entry's content; `name` is for StateError."""
    if blob[0] not in (JOURNAL_VERSION, JOURNAL_VERSION_WITHOUT_SEAMS):
        raise StateError(name, f"is of a version above {JOURNAL_VERSION}")
    at = _PRELUDE + _COUNTERS.size
    sections = []
    for _ in range(5):
        (length,) = _LENGTH.unpack_from(blob, at)
        sections.append(blob[at + _LENGTH.size : at + _LENGTH.size + length])
        at += _LENGTH.size + length
    learnt, seen, installed, removed, buried = sections
    changes = Changes(
        _decode_learnt(learnt),
        _decode_seen(seen, blob[0]),
        np.frombuffer(installed, "<i8").reshape(COLUMNS, -1),
        np.frombuffer(removed, "<u4").astype(np.int64).reshape(2, -1),
        np.frombuffer(buried, "<i8").reshape(-1, 3),
    )
    return Counters.decode(blob, _PRELUDE), changes


def _decode_seen(body: bytes, version: int) -> Int64s:
    columns = np.frombuffer(body, "<i8")
    if version != JOURNAL_VERSION_WITHOUT_SEAMS:
        return columns.reshape(SEEN_COLUMNS, -1)
    numbers, newest_ms = columns.reshape(2, -1)
    return np.array([numbers, newest_ms, np.ones_like(numbers), np.zeros_like(numbers)])


def _decode_learnt(body: bytes) -> list[str | tuple[int, Split]]:
    learnt: list[str | tuple[int, Split]] = []
    at = 0
    while at < len(body):
        kind, length, number, *split = _LEARNT.unpack_from(body, at)
        at += _LEARNT.size
        learnt.append((number, Split(*split)) if kind else body[at : at + length].decode())
        at += length
    return learnt


def entries_after(state: StateMap, record: int) -> Iterator[tuple[Counters, Changes]]:
    """Entries of the records after `record`, in order; the ring's older entries end it."""
    while True:
        record += 1
        name = journal_key(record)
        blob = state.get(name)
        if blob is None:
            return
        counters, changes = decode_entry(blob, name)
        if counters.record != record:
            return
        yield counters, changes


def encode_header(counters: Counters, symbols: int, directory: bytes) -> bytes:
    """The header after a fold: `<version u1><7 zero bytes><counters><symbols u8><directory>`."""
    return bytes([HEADER_VERSION]).ljust(_PRELUDE, b"\0") + counters.encode() + _LENGTH.pack(symbols) + directory


def decode_header(blob: bytes) -> tuple[Counters, int, bytes]:
    """(counters, number of symbols, directory of runs)."""
    if blob[:1] != bytes([HEADER_VERSION]):
        raise StateError(HEADER_KEY, f"is of a version other than {HEADER_VERSION}")
    at = _PRELUDE + _COUNTERS.size
    (symbols,) = _LENGTH.unpack_from(blob, at)
    return Counters.decode(blob, _PRELUDE), symbols, blob[at + _LENGTH.size :]
