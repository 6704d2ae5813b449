"""A shard's rules: a small delta in memory and a few sorted runs, searched together for a whole frame at once.

Runs fall in size by MERGE_RATIO at least, so there are few. An EITHER rule is one row in a list of its own, which
both directions search: fired once, it is gone from both.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Final, NamedTuple

import numpy as np

from flink_jobs.domain.rule_delta import RuleDelta
from flink_jobs.domain.rule_pages import (
    ACTIVE_FROM_MS,
    ALERT_ID,
    CREATED_AT_MS,
    EXPIRES_AT_MS,
    KEY,
    PAGE_ROWS,
    THRESHOLD,
    VERSION,
    PageReader,
    sorted_rules,
)
from flink_jobs.domain.rule_run import CHUNK_ROWS, RuleRun, read_runs
from flink_jobs.domain.run_merge import merge_runs
from flink_jobs.domain.state import StateMap
from flink_jobs.domain.threshold_keys import (
    CODE_BITS,
    EITHER,
    FIRST_PRICE_SLOT,
    SLOTS,
    SLOTS_PER_WINDOW,
    Int64s,
)

MERGE_RATIO: Final = 4
MAX_DEAD_SHARE: Final = 4  # a run is rewritten when more than one in so many rows is dead
DELTA: Final = 0xFFFF_FFFF  # the delta's place number; runs have 0, 1, …
_NEXT_RUN: Final = struct.Struct("<Q")


class Hits(NamedTuple):
    """Columns: query `query` found sorted positions [start, end) of place `place`."""

    query: Int64s
    place: Int64s
    start: Int64s
    end: Int64s


class Part(NamedTuple):
    """Sorted positions [start, end) of a place; rules of them with lowest <= threshold <= highest are crossed."""

    place: int
    start: int
    end: int
    lowest: int
    highest: int


class Crossed(NamedTuple):
    """A live rule in a crossed interval and within its lifetime."""

    threshold: int
    alert_id: int
    version: int
    place: int
    row: int


class Found(NamedTuple):
    """A live rule found by its identity."""

    place: int
    row: int
    version: int


@dataclass(slots=True)
class IndexReads:
    """What matching has read, since this process began."""

    rows: int = 0
    stale_rows: int = 0  # of those: outside their lifetime, or below an inexact code


class ThresholdIndex:
    """All rules of one shard."""

    def __init__(self, state: StateMap, directory: bytes = b"") -> None:
        """`directory`: what `fold` returned last, empty at the beginning."""
        self._state = state
        self.pages = PageReader(state)
        self.reads = IndexReads()
        self._delta = RuleDelta()
        self._runs: list[RuleRun] = []
        self._next_run = 0
        if directory:
            (self._next_run,) = _NEXT_RUN.unpack_from(directory)
            self._runs = read_runs(state, directory[_NEXT_RUN.size :], self.pages)
        self.has_either = any(_holds_either(run.keys[:-1]) for run in self._runs)
        self._journaled = 0
        self._killed_places, self._killed_rows = array("I"), array("I")

    # ------------------------------------------------------------------------------ changes
    def install(self, rule: Sequence[int]) -> None:
        """Add one rule, its columns in order. The caller has taken out what it replaces."""
        self._delta.append(rule)
        self.has_either = self.has_either or _is_either(rule[KEY])

    def install_batch(self, rules: Int64s) -> None:
        """Add rules, shape (COLUMNS, n)."""
        if rules.shape[1]:
            self._delta.append(rules)
            self.has_either = self.has_either or _holds_either(rules[KEY])

    def kill(self, place: int, row: int) -> None:
        """Take a row out."""
        source = self._delta if place == DELTA else self._runs[place]
        if source.kill(row):
            self._killed_places.append(place)
            self._killed_rows.append(row)

    def find(self, key: int, threshold: int, alert_id: int) -> Found | None:
        """A live rule by its list, threshold and id."""
        row = self._delta.row_of(alert_id)
        if row is not None:
            same = self._delta.column(row, KEY) == key and self._delta.column(row, THRESHOLD) == threshold
            return Found(DELTA, row, self._delta.column(row, VERSION)) if same else None
        for place in range(len(self._runs) - 1, -1, -1):
            run = self._runs[place]
            row = run.find(key, threshold, alert_id)
            if row is not None:
                return Found(place, row, run.column(row, VERSION))
        return None

    def move_list(self, old_base: int, new_base: int, created_from_ms: int) -> None:
        """Move the rules of one list created at or after `created_from_ms` to another list."""
        moved = []
        for place, start, end in self._positions(old_base, old_base + (1 << CODE_BITS) - 1):
            for rows, rules in self._batches(place, start, end):
                chosen = rules[CREATED_AT_MS] >= created_from_ms
                for row in rows[chosen].tolist():
                    self.kill(place, row)
                moved.append(rules[:, chosen].copy())
        for rules in moved:
            rules[KEY] += new_base - old_base
            self.install_batch(rules)

    # ------------------------------------------------------------------------------ search
    def search(self, starts: Int64s, ends: Int64s) -> Hits:
        """Which of the key intervals [starts, ends] (both inclusive) hold any row, dead rows included."""
        # Sorted, neighbours share their way down the array: three times as fast as in tick order.
        queries = np.flatnonzero(starts <= ends)
        queries = queries[np.argsort(starts[queries])]
        starts, ends = starts[queries], ends[queries]
        found = []
        for place, keys in self._places():
            at = keys.searchsorted(starts)
            hit = np.flatnonzero(keys[at] <= ends)
            if len(hit):
                until = keys.searchsorted(ends[hit], "right")
                found.append((queries[hit], np.full(len(hit), place), at[hit], until))
        if not found:
            nothing = np.zeros(0, np.int64)
            return Hits(nothing, nothing, nothing, nothing)
        return Hits(*(np.concatenate(columns) for columns in zip(*found, strict=True)))

    def crossed(self, parts: Sequence[Part], event_time_ms: int) -> Iterator[Crossed]:
        """Rules of `parts` to fire at an event time, in order of (threshold, alert_id).

        Rows past their lifetime are taken out on the way; the caller kills what it gets.
        """
        streams = [self._crossed_part(part, event_time_ms) for part in parts]
        return streams[0] if len(streams) == 1 else merge(*streams)

    def _crossed_part(self, part: Part, event_time_ms: int) -> Iterator[Crossed]:
        for rows, rules in self._batches(part.place, part.start, part.end):
            self.reads.rows += len(rows)
            thresholds = rules[THRESHOLD]
            inside = (thresholds >= part.lowest) & (thresholds <= part.highest)
            expired = inside & (rules[EXPIRES_AT_MS] <= event_time_ms)
            for row in rows[expired].tolist():
                self.kill(part.place, row)
            fires = inside & ~expired & (rules[ACTIVE_FROM_MS] <= event_time_ms)
            self.reads.stale_rows += len(rows) - int(np.count_nonzero(fires))
            columns = (thresholds[fires], rules[ALERT_ID, fires], rules[VERSION, fires], rows[fires])
            for threshold, alert_id, version, row in zip(*(column.tolist() for column in columns), strict=True):
                yield Crossed(threshold, alert_id, version, part.place, row)

    def _places(self) -> Iterator[tuple[int, Int64s]]:
        for place, run in enumerate(self._runs):
            yield place, run.keys
        if self._delta.count:
            yield DELTA, self._delta.keys

    def _positions(self, first_key: int, last_key: int) -> list[tuple[int, int, int]]:
        positions = []
        for place, keys in self._places():
            start, end = int(keys.searchsorted(first_key)), int(keys.searchsorted(last_key, "right"))
            if start < end:
                positions.append((place, start, end))
        return positions

    def _batches(self, place: int, start: int, end: int) -> Iterator[tuple[Int64s, Int64s]]:
        if place != DELTA:
            yield from self._runs[place].pages_between(start, end)
            return
        for at in range(start, end, PAGE_ROWS):
            yield self._delta.rows_between(at, min(end, at + PAGE_ROWS))

    # ------------------------------------------------------------------------------ state
    def changes(self) -> tuple[Int64s, Int64s, Int64s]:
        """(installed rules, places, rows taken out) since the last call: what a journal entry keeps."""
        installed = self._delta.since(self._journaled).copy()
        places, rows = np.array(self._killed_places, np.int64), np.array(self._killed_rows, np.int64)
        self._journaled = self._delta.count
        self._killed_places, self._killed_rows = array("I"), array("I")
        return installed, places, rows

    def replay(self, installed: Int64s, places: Int64s, rows: Int64s) -> None:
        """Apply what `changes` returned."""
        self.install_batch(installed)
        for place, row in zip(places.tolist(), rows.tolist(), strict=True):
            self.kill(place, row)
        self.changes()

    def fold(self) -> bytes:
        """Bring the state up to date: delta into a run, runs merged as needed, dead bits. Returns the directory."""
        newest = sorted_rules(self._delta.live())
        first, rows = len(self._runs), newest.shape[1]
        for place in range(len(self._runs) - 1, -1, -1):
            run = self._runs[place]
            live = run.count - run.dead_count
            if (rows and rows * MERGE_RATIO >= live) or run.dead_count * MAX_DEAD_SHARE > run.count:
                first, rows = place, sum(r.count - r.dead_count for r in self._runs[place:]) + newest.shape[1]
        if first < len(self._runs) or rows:
            run_id, self._next_run = self._next_run, self._next_run + 1
            merged = merge_runs(self._state, self.pages, run_id, self._runs[first:], newest)
            self._runs[first:] = [] if merged is None else [merged]
        self._delta.clear()
        self._journaled = 0
        self._killed_places, self._killed_rows = array("I"), array("I")
        for run in self._runs:
            run.write_dead(self._state)
        return _NEXT_RUN.pack(self._next_run) + b"".join(run.directory() for run in self._runs)

    @property
    def highest_id(self) -> int:
        """Highest alert id in any run; 0 without one."""
        return max((run.highest_id for run in self._runs), default=0)

    @property
    def delta_rows(self) -> int:
        """Rows in memory that are in no run yet."""
        return self._delta.count

    @property
    def run_count(self) -> int:
        """Sorted runs that every search visits."""
        return len(self._runs)

    @property
    def live_rules(self) -> int:
        """Rules that can still fire or expire."""
        return sum(run.count - run.dead_count for run in self._runs) + self._delta.count - self._delta.dead_count


def _is_either(key: int) -> bool:
    slot = key >> CODE_BITS & (SLOTS - 1)
    return slot < FIRST_PRICE_SLOT and slot % SLOTS_PER_WINDOW == EITHER


def _holds_either(keys: Int64s) -> bool:
    return any(_part_holds_either(keys[at : at + CHUNK_ROWS]) for at in range(0, len(keys), CHUNK_ROWS))


def _part_holds_either(keys: Int64s) -> bool:
    slots = keys >> CODE_BITS & (SLOTS - 1)
    return bool(np.any((slots < FIRST_PRICE_SLOT) & (slots % SLOTS_PER_WINDOW == EITHER)))
