"""Merging sorted sources into one new run, page by page: memory for a page of each source and the new keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from flink_jobs.domain.rule_pages import (
    ALERT_ID,
    COLUMNS,
    KEY,
    PAGE_ROWS,
    THRESHOLD,
    PageReader,
    encode_page,
    page_key,
    sorted_rules,
)
from flink_jobs.domain.rule_run import RuleRun, write_keys
from flink_jobs.domain.state import StateMap
from flink_jobs.domain.threshold_keys import END_OF_KEYS, Int64s

_NOTHING: Final[Int64s] = np.zeros((COLUMNS, 0), np.int64)


def merge_runs(
    state: StateMap, reader: PageReader, run_id: int, runs: Sequence[RuleRun], newest: Int64s
) -> RuleRun | None:
    """Write the live rules of `runs` and the sorted batch `newest` as run `run_id`, drop `runs`. None: none is live."""
    count = newest.shape[1] + sum(run.count - run.dead_count for run in runs)
    keys: Int64s = np.empty(count + 1, np.int64)
    keys[count] = END_OF_KEYS
    sources = [_live_pages(run) for run in runs]
    if newest.shape[1]:
        sources.append(iter([newest]))
    written, lowest_id, highest_id, waiting = 0, END_OF_KEYS, 0, _NOTHING
    for rules in _merged(sources):
        keys[written + waiting.shape[1] : written + waiting.shape[1] + rules.shape[1]] = rules[KEY]
        lowest_id = min(lowest_id, int(rules[ALERT_ID].min()))
        highest_id = max(highest_id, int(rules[ALERT_ID].max()))
        waiting = np.concatenate((waiting, rules), axis=1)
        whole = waiting.shape[1] // PAGE_ROWS * PAGE_ROWS
        for start in range(0, whole, PAGE_ROWS):
            state.put(
                page_key(run_id, (written + start) // PAGE_ROWS), encode_page(waiting[:, start : start + PAGE_ROWS])
            )
        written, waiting = written + whole, waiting[:, whole:]
    if waiting.shape[1]:
        state.put(page_key(run_id, written // PAGE_ROWS), encode_page(waiting))
    assert written + waiting.shape[1] == count
    for run in runs:
        run.drop(state)
    if not count:
        return None
    write_keys(state, run_id, keys)
    return RuleRun(run_id, keys, lowest_id, highest_id, reader)


def _live_pages(run: RuleRun) -> Iterator[Int64s]:
    for _, rules in run.pages_between(0, run.count):
        yield rules


def _merged(sources: Sequence[Iterator[Int64s]]) -> Iterator[Int64s]:
    """Sorted batches out of sorted sources: each turn gives all rows up to the lowest last row that is in memory."""
    held: list[tuple[Int64s, Iterator[Int64s]]] = []
    for source in sources:
        held += ((batch, source) for batch in islice(source, 1))
    while held:
        if len(held) == 1:
            batch, source = held[0]
            yield batch
            yield from source
            return
        bound = min(tuple(batch[[KEY, THRESHOLD, ALERT_ID], -1].tolist()) for batch, _ in held)
        taken, kept = [], []
        for batch, source in held:
            until = _rows_up_to(batch, bound)
            taken.append(batch[:, :until])
            rest = batch[:, until:] if until < batch.shape[1] else next(source, None)
            if rest is not None:
                kept.append((rest, source))
        yield sorted_rules(np.concatenate(taken, axis=1))
        held = kept


def _rows_up_to(batch: Int64s, bound: tuple[int, ...]) -> int:
    """Leading rows at or before `bound` = (key, threshold, alert_id)."""
    key, threshold, alert_id = bound
    start = int(batch[KEY].searchsorted(key, "left"))
    end = int(batch[KEY].searchsorted(key, "right"))
    tied, ids = batch[THRESHOLD, start:end], batch[ALERT_ID, start:end]
    return start + int(np.count_nonzero((tied < threshold) | ((tied == threshold) & (ids <= alert_id))))
