"""A shard's rules: a small delta in memory and a few sorted runs, searched together for a whole frame at once.

Runs fall in size by MERGE_RATIO at least, so there are few. An EITHER rule is one row in a list of its own, which
both directions search: fired once, it is gone from both.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Final

import numpy as np

from flink_jobs.domain.index_rows import (
    Crossed,
    Dropped,
    Found,
    Hits,
    IndexReads,
    Part,
    holds_either,
    is_either,
)
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
from flink_jobs.domain.rule_run import RuleRun, read_runs
from flink_jobs.domain.run_merge import merge_runs
from flink_jobs.domain.state import StateMap
from flink_jobs.domain.threshold_keys import CODE_BITS, Int64s

MERGE_RATIO: Final = 4
MAX_DEAD_SHARE: Final = 4  # a run is rewritten when more than one in so many rows is dead
DELTA: Final = 0xFFFF_FFFF  # the delta's place number; runs have 0, 1, …
_NEXT_RUN: Final = struct.Struct("<Q")


class ThresholdIndex:
    """All rules of one shard."""

    def __init__(self, state: StateMap, directory: bytes = b"") -> None:
        """`directory`: what `fold` returned last, empty at the beginning. Set `old_runs` to what it was then."""
        self._state = state
        self.pages = PageReader(state)
        self.reads = IndexReads()
        self._delta = RuleDelta()
        self._runs: list[RuleRun] = []
        self._next_run = 0
        if directory:
            (self._next_run,) = _NEXT_RUN.unpack_from(directory)
            self._runs = read_runs(state, directory[_NEXT_RUN.size :], self.pages)
        self.has_either = any(holds_either(run.keys[:-1]) for run in self._runs)
        self.old_runs = 0  # runs of rules that are older than the generation
        self._old_rows: int | None = None  # rows of the delta that are; None: no generation has begun since the fold
        self._journaled = 0
        self._killed_places, self._killed_rows = array("I"), array("I")

    # ------------------------------------------------------------------------------ changes
    def install(self, rule: Sequence[int]) -> None:
        """Add one rule, its columns in order. The caller has taken out what it replaces."""
        self._delta.append(rule)
        self.has_either = self.has_either or is_either(rule[KEY])

    def install_batch(self, rules: Int64s) -> None:
        """Add rules, shape (COLUMNS, n)."""
        if rules.shape[1]:
            self._delta.append(rules)
            self.has_either = self.has_either or holds_either(rules[KEY])

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

    # ------------------------------------------------------------------------------ generations
    def begin_generation(self) -> None:
        """From here on rules are told from those before. The caller folds before the record's end."""
        self._old_rows = self._delta.count

    def end_generation(self) -> None:
        """All are alike again. The caller folds before the record's end."""
        self._old_rows, self.old_runs = None, 0

    def renew(self, found: Found) -> None:
        """Take an older rule over into the generation, as it is."""
        if self._is_old(found.place, found.row):
            source = self._delta if found.place == DELTA else self._runs[found.place]
            rule = source.rule(found.row)
            self.kill(found.place, found.row)
            self.install(rule)

    def _is_old(self, place: int, row: int) -> bool:
        if place == DELTA:
            return row < (self._old_rows or 0)
        return self._old_rows is not None or place < self.old_runs

    def drop(self, ranges: Sequence[tuple[int, int]], names: int, *, old_only: bool, keep: bool = False) -> Dropped:
        """Take the rules with keys in [first, last] out, all or the old ones; `keep`: only count and name them.

        The caller folds before the record's end: a journal entry
        would not tell of it.
        """
        count = 0
        named: list[tuple[int, int]] = []
        for place, start, end in chain.from_iterable(self._positions(*keys) for keys in ranges):
            if place == DELTA:
                rows, rules = self._delta.rows_between(start, end)
                chosen = rows < (self._old_rows or 0) if old_only else np.ones(len(rows), bool)
                rows, batches = rows[chosen], iter([rules[:, chosen]])
                count += len(rows)
                for row in [] if keep else rows.tolist():
                    self.kill(place, row)
            elif old_only and not self._is_old(place, start):
                continue
            else:
                run = self._runs[place]
                count += len(run.live_rows(start, end))
                batches = (rules for _, rules in run.pages_between(start, end))
            found = (pair for rules in batches for pair in rules[[ALERT_ID, VERSION]].T.tolist())
            named += [(alert_id, version) for alert_id, version in islice(found, names - len(named))]
            if place != DELTA and not keep:
                self._runs[place].kill_between(start, end)
        return Dropped(count, named)

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
        if self._old_rows is None:
            self._merge(self._delta.live())
        else:
            self.old_runs = 0
            self._merge(self._delta.live(0, self._old_rows))
            self.old_runs = len(self._runs)
            self._merge(self._delta.live(self._old_rows))
            self._old_rows = None
        self._delta.clear()
        self._journaled = 0
        self._killed_places, self._killed_rows = array("I"), array("I")
        for run in self._runs:
            run.write_dead(self._state)
        return _NEXT_RUN.pack(self._next_run) + b"".join(run.directory() for run in self._runs)

    def _merge(self, rules: Int64s) -> None:
        """Newest rules into a run, and with them younger runs that are not much larger or full of dead rows."""
        for place in range(len(self._runs) - 1, -1, -1):
            if self._runs[place].dead_count == self._runs[place].count:
                self._runs.pop(place).drop(self._state)
                self.old_runs -= place < self.old_runs
        newest = sorted_rules(rules)
        first, rows = len(self._runs), newest.shape[1]
        for place in range(len(self._runs) - 1, self.old_runs - 1, -1):
            run = self._runs[place]
            live = run.count - run.dead_count
            if (rows and rows * MERGE_RATIO >= live) or run.dead_count * MAX_DEAD_SHARE > run.count:
                first, rows = place, sum(r.count - r.dead_count for r in self._runs[place:]) + newest.shape[1]
        if first < len(self._runs) or rows:
            run_id, self._next_run = self._next_run, self._next_run + 1
            merged = merge_runs(self._state, self.pages, run_id, self._runs[first:], newest)
            self._runs[first:] = [] if merged is None else [merged]

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
