"""Removed rules, so that a create that comes behind its remove is not installed. Bounded by count and by event time."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import numpy as np

from contracts.vocabulary import DAY_MS
from flink_jobs.domain.frame_error import StateError
from flink_jobs.domain.state import StateMap
from flink_jobs.domain.threshold_keys import Int64s

MAX_TOMBSTONES: Final = 65_536  # a shard
TOMBSTONE_PERIOD_MS: Final = DAY_MS  # of the shard's newest event time
CHUNK_VERSION: Final = 1
CHUNK_TOMBSTONES: Final = 1_024
_ROW: Final = np.dtype([("number", "<i8"), ("alert_id", "<i8"), ("version", "<i8"), ("removed_at_ms", "<i8")])


def tombstones_key(chunk: int) -> str:
    """State key of a chunk: tombstones number chunk * CHUNK_TOMBSTONES and on."""
    return f"tombstones/{chunk:x}"


class Tombstones:
    """Numbered in the order of removal; one an alert. What is forgotten when depends on the log alone."""

    def __init__(self, max_count: int = MAX_TOMBSTONES, period_ms: int = TOMBSTONE_PERIOD_MS) -> None:
        self._max_count, self._period_ms = max_count, period_ms
        self._of: OrderedDict[int, tuple[int, int, int]] = OrderedDict()  # alert -> number, version, removed at
        self.next_number = 0
        self._first_chunk = 0
        self._dirty: set[int] = set()
        self._journal: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._of)

    def version_of(self, alert_id: int) -> int:
        """Version up to which an alert is removed; 0 when it is not known to be."""
        found = self._of.get(alert_id)
        return found[1] if found else 0

    def bury(self, alert_id: int, version: int, removed_at_ms: int) -> None:
        """Remember a remove at the shard's newest event time, and forget what is over."""
        self._journal.append((alert_id, version, removed_at_ms))
        version = max(version, self.version_of(alert_id))
        self._of.pop(alert_id, None)
        self._of[alert_id] = (self.next_number, version, removed_at_ms)
        self._dirty.add(self.next_number // CHUNK_TOMBSTONES)
        self.next_number += 1
        while self._of:
            oldest, (_, _, at_ms) = next(iter(self._of.items()))
            if len(self._of) <= self._max_count and at_ms > removed_at_ms - self._period_ms:
                break
            del self._of[oldest]

    def changes(self) -> Int64s:
        """Removes since the last call as rows (alert_id, version, removed_at_ms): what a journal entry keeps."""
        rows = np.array(self._journal, np.int64).reshape(-1, 3)
        self._journal.clear()
        return rows

    def replay(self, rows: Int64s) -> None:
        """Apply what `changes` returned."""
        for alert_id, version, removed_at_ms in rows.tolist():
            self.bury(alert_id, version, removed_at_ms)
        self._journal.clear()

    # ------------------------------------------------------------------------------ state
    @property
    def first_number(self) -> int:
        """Number of the oldest one that is remembered."""
        return next(iter(self._of.values()))[0] if self._of else self.next_number

    def write(self, state: StateMap) -> None:
        """Write the chunks that have grown, remove those that are over."""
        first = self.first_number // CHUNK_TOMBSTONES
        rows: dict[int, list[tuple[int, int, int, int]]] = {chunk: [] for chunk in self._dirty if chunk >= first}
        if rows:
            for alert_id, (number, version, removed_at_ms) in reversed(self._of.items()):
                chunk = number // CHUNK_TOMBSTONES
                if chunk < min(rows):
                    break
                rows[chunk].append((number, alert_id, version, removed_at_ms))
        for chunk in sorted(rows):
            body = np.array(rows[chunk][::-1], _ROW).tobytes()
            state.put(tombstones_key(chunk), bytes([CHUNK_VERSION]) + body)
        for chunk in range(self._first_chunk, first):
            state.remove(tombstones_key(chunk))
        self._first_chunk = first
        self._dirty.clear()
        self._journal.clear()

    @classmethod
    def read(
        cls,
        state: StateMap,
        first_number: int,
        next_number: int,
        max_count: int = MAX_TOMBSTONES,
        period_ms: int = TOMBSTONE_PERIOD_MS,
    ) -> Tombstones:
        """As written; what was superseded since its chunk was written is dropped."""
        tombstones = cls(max_count, period_ms)
        tombstones.next_number = next_number
        tombstones._first_chunk = first_number // CHUNK_TOMBSTONES
        for chunk in range(tombstones._first_chunk, -(-next_number // CHUNK_TOMBSTONES)):
            name = tombstones_key(chunk)
            blob = state.get(name)
            if blob is None or blob[0] != CHUNK_VERSION:
                raise StateError(name, f"is missing or of a version other than {CHUNK_VERSION}")
            for number, alert_id, version, removed_at_ms in np.frombuffer(blob, _ROW, offset=1).tolist():
                if number >= first_number:
                    tombstones._of.pop(alert_id, None)
                    tombstones._of[alert_id] = (number, version, removed_at_ms)
        return tombstones
