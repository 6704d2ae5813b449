"""The newest rules, in memory: appended to, searched by a sorted view, folded into a run when there are enough."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flink_jobs.domain.rule_pages import ALERT_ID, COLUMNS, KEY, THRESHOLD
from flink_jobs.domain.threshold_keys import END_OF_KEYS, Int64s

_FIRST_CAPACITY = 64


class RuleDelta:
    """Rows keep their number until the delta is emptied; a dead row stays and is skipped."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.count = 0
        self.dead_count = 0
        self._columns: Int64s = np.zeros((COLUMNS, _FIRST_CAPACITY), np.int64)
        self._dead = np.zeros(_FIRST_CAPACITY, bool)
        self._row_of: dict[int, int] = {}
        self._order: Int64s = np.zeros(0, np.int64)
        self._keys: Int64s = np.full(1, END_OF_KEYS, np.int64)
        self._sorted_count = 0

    def append(self, rules: Int64s | Sequence[int]) -> None:
        """Add rules: one as a sequence of its columns, or a batch of shape (COLUMNS, n)."""
        batch = np.array(rules, np.int64).reshape(COLUMNS, -1)
        added = batch.shape[1]
        if self.count + added > self._columns.shape[1]:
            room = max(self.count + added, 2 * self._columns.shape[1])
            columns, dead = np.zeros((COLUMNS, room), np.int64), np.zeros(room, bool)
            columns[:, : self.count], dead[: self.count] = self._columns[:, : self.count], self._dead[: self.count]
            self._columns, self._dead = columns, dead
        self._columns[:, self.count : self.count + added] = batch
        for offset, alert_id in enumerate(batch[ALERT_ID].tolist()):
            self._row_of[alert_id] = self.count + offset
        self.count += added

    def row_of(self, alert_id: int) -> int | None:
        """Row of a live rule."""
        return self._row_of.get(alert_id)

    def kill(self, row: int) -> bool:
        """Take a row out; False when it was out before."""
        if self._dead[row]:
            return False
        self._dead[row] = True
        self.dead_count += 1
        alert_id = int(self._columns[ALERT_ID, row])
        if self._row_of.get(alert_id) == row:
            del self._row_of[alert_id]
        return True

    def column(self, row: int, column: int) -> int:
        """One value of one rule."""
        return int(self._columns[column, row])

    def since(self, row: int) -> Int64s:
        """Rules appended from `row` on, dead ones included."""
        return self._columns[:, row : self.count]

    def live(self, first: int = 0, end: int | None = None) -> Int64s:
        """The rules of rows [first, end) that are not dead."""
        end = self.count if end is None else end
        return self._columns[:, first:end][:, ~self._dead[first:end]]

    def rule(self, row: int) -> list[int]:
        """A rule's columns."""
        columns: list[int] = self._columns[:, row].tolist()
        return columns

    @property
    def keys(self) -> Int64s:
        """Sorted keys of all rows and END_OF_KEYS; positions in it are for `rows_between`."""
        if self._sorted_count != self.count:
            columns = self._columns[:, : self.count]
            self._order = np.lexsort((columns[ALERT_ID], columns[THRESHOLD], columns[KEY]))
            self._keys = np.append(columns[KEY, self._order], END_OF_KEYS)
            self._sorted_count = self.count
        return self._keys

    def rows_between(self, start: int, end: int) -> tuple[Int64s, Int64s]:
        """(row numbers, their rules) of the live rows at sorted positions [start, end)."""
        rows = self._order[start:end]
        rows = rows[~self._dead[rows]]
        return rows, self._columns[:, rows]
