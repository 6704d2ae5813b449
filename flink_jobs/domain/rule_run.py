"""An immutable sorted run of rules: keys and dead bits in memory, everything else in pages of the state."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flink_jobs.domain.frame_error import StateError
from flink_jobs.domain.rule_pages import ALERT_ID, PAGE_ROWS, THRESHOLD, PageReader, page_key
from flink_jobs.domain.state import StateMap
from flink_jobs.domain.threshold_keys import END_OF_KEYS, Int64s

CHUNK_VERSION: Final = 1
CHUNK_ROWS: Final = 16 * PAGE_ROWS  # keys and dead bits of so many rows are one state entry
_CHUNK_HEADER: Final = 8
_DIRECTORY: Final = struct.Struct("<5Q")


def keys_key(run_id: int, chunk: int) -> str:
    """State key of a chunk of a run's keys."""
    return f"keys/{run_id:x}/{chunk:x}"


def dead_key(run_id: int, chunk: int) -> str:
    """State key of a chunk of a run's dead bits; absent while none is dead."""
    return f"dead/{run_id:x}/{chunk:x}"


def _chunk(body: bytes) -> bytes:
    return bytes([CHUNK_VERSION]).ljust(_CHUNK_HEADER, b"\0") + body


def _body(blob: bytes | None, name: str) -> memoryview:
    if blob is None or blob[:1] != bytes([CHUNK_VERSION]):
        raise StateError(name, f"is missing or of a version other than {CHUNK_VERSION}")
    return memoryview(blob)[_CHUNK_HEADER:]


class RuleRun:
    """`keys`: the rows' keys in order, END_OF_KEYS behind them. Row r is row r % PAGE_ROWS of page r // PAGE_ROWS."""

    def __init__(self, run_id: int, keys: Int64s, lowest_id: int, highest_id: int, reader: PageReader) -> None:
        self.run_id, self.keys, self.lowest_id, self.highest_id = run_id, keys, lowest_id, highest_id
        self.count = len(keys) - 1
        self.dead_count = 0
        self._dead: NDArray[np.uint8] = np.zeros((self.count + 7) // 8, np.uint8)
        self._dirty: set[int] = set()
        self._reader = reader

    # ------------------------------------------------------------------------------ rows
    def kill(self, row: int) -> bool:
        """Take a row out; False when it was out before."""
        byte, bit = row >> 3, 1 << (row & 7)
        if self._dead[byte] & bit:
            return False
        self._dead[byte] |= bit
        self._dirty.add(row // CHUNK_ROWS)
        self.dead_count += 1
        return True

    def kill_between(self, start: int, end: int) -> None:
        """Take every row in [start, end) out."""
        self.dead_count += len(self.live_rows(start, end))
        first, last = start >> 3, (end + 7) >> 3
        bits = np.unpackbits(self._dead[first:last], bitorder="little")
        bits[start & 7 : (start & 7) + end - start] = 1
        self._dead[first:last] = np.packbits(bits, bitorder="little")
        self._dirty.update(range(start // CHUNK_ROWS, (end - 1) // CHUNK_ROWS + 1))

    def live_rows(self, start: int, end: int) -> Int64s:
        """Numbers of the live rows in [start, end)."""
        bits = np.unpackbits(self._dead[start >> 3 : (end + 7) >> 3], bitorder="little")
        return np.flatnonzero(bits[start & 7 : (start & 7) + end - start] == 0) + start

    def pages_between(self, start: int, end: int) -> Iterator[tuple[Int64s, Int64s]]:
        """(row numbers, rules) of the live rows in [start, end), page by page; pages without one are not read."""
        while start < end:
            page = start // PAGE_ROWS
            until = min(end, (page + 1) * PAGE_ROWS)
            rows = self.live_rows(start, until)
            if len(rows):
                yield rows, self._reader.page(self.run_id, page)[:, rows - page * PAGE_ROWS]
            start = until

    def column(self, row: int, column: int) -> int:
        """One value of one rule."""
        return int(self._reader.page(self.run_id, row // PAGE_ROWS)[column, row % PAGE_ROWS])

    def rule(self, row: int) -> list[int]:
        """A rule's columns."""
        columns: list[int] = self._reader.page(self.run_id, row // PAGE_ROWS)[:, row % PAGE_ROWS].tolist()
        return columns

    def find(self, key: int, threshold: int, alert_id: int) -> int | None:
        """Row of a live rule, by bisection over the rows of its key."""
        if not self.lowest_id <= alert_id <= self.highest_id:
            return None
        low, end = self.keys[: self.count].searchsorted([key, key + 1]).tolist()
        if low == end or not len(self.live_rows(low, end)):
            return None  # after a storm its removes arrive: nothing is read for them
        high = end
        while low < high:
            middle = (low + high) // 2
            if (self.column(middle, THRESHOLD), self.column(middle, ALERT_ID)) < (threshold, alert_id):
                low = middle + 1
            else:
                high = middle
        if low == end or (self.column(low, THRESHOLD), self.column(low, ALERT_ID)) != (threshold, alert_id):
            return None
        return low if len(self.live_rows(low, low + 1)) else None

    # ------------------------------------------------------------------------------ state
    def directory(self) -> bytes:
        """What the header keeps of it."""
        return _DIRECTORY.pack(self.run_id, self.count, self.dead_count, self.lowest_id, self.highest_id)

    def write_dead(self, state: StateMap) -> None:
        """Write the dead bits that have changed."""
        for chunk in sorted(self._dirty):
            bits = self._dead[chunk * CHUNK_ROWS // 8 : (chunk + 1) * CHUNK_ROWS // 8]
            state.put(dead_key(self.run_id, chunk), _chunk(bits.tobytes()))
        self._dirty.clear()

    def drop(self, state: StateMap) -> None:
        """Remove everything of it from the state."""
        for page in range(-(-self.count // PAGE_ROWS)):
            state.remove(page_key(self.run_id, page))
        for chunk in range(-(-self.count // CHUNK_ROWS)):
            state.remove(keys_key(self.run_id, chunk))
            state.remove(dead_key(self.run_id, chunk))


def write_keys(state: StateMap, run_id: int, keys: Int64s) -> None:
    """Write a new run's keys (with END_OF_KEYS behind them, which is not written)."""
    count = len(keys) - 1
    for chunk, start in enumerate(range(0, count, CHUNK_ROWS)):
        part = keys[start : min(start + CHUNK_ROWS, count)]
        state.put(keys_key(run_id, chunk), _chunk(part.astype("<i8", copy=False).tobytes()))


def read_runs(state: StateMap, directories: bytes, reader: PageReader) -> list[RuleRun]:
    """Runs as the header's directories name them."""
    runs = []
    for run_id, count, dead_count, lowest_id, highest_id in _DIRECTORY.iter_unpack(directories):
        keys = np.empty(count + 1, np.int64)
        keys[count] = END_OF_KEYS
        run = RuleRun(run_id, keys, lowest_id, highest_id, reader)
        for chunk, start in enumerate(range(0, count, CHUNK_ROWS)):
            name = keys_key(run_id, chunk)
            keys[start : min(start + CHUNK_ROWS, count)] = np.frombuffer(_body(state.get(name), name), "<i8")
            bits = state.get(dead_key(run_id, chunk)) if dead_count else None
            if bits is not None:
                body = np.frombuffer(_body(bits, dead_key(run_id, chunk)), np.uint8)
                run._dead[start // 8 : start // 8 + len(body)] = body
        run.dead_count = dead_count
        runs.append(run)
    return runs
