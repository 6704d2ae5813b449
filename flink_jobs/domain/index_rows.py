"""What the index's searches find and its changes name; small values that say no more than their columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flink_jobs.domain.rule_run import CHUNK_ROWS
from flink_jobs.domain.threshold_keys import (
    CODE_BITS,
    EITHER,
    FIRST_PRICE_SLOT,
    SLOTS,
    SLOTS_PER_WINDOW,
    Int64s,
)


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


class Dropped(NamedTuple):
    """How many rules were dropped, and (alert_id, version) of the first of them."""

    rules: int
    named: list[tuple[int, int]]


@dataclass(slots=True)
class IndexReads:
    """What matching has read, since this process began."""

    rows: int = 0
    stale_rows: int = 0  # of those: outside their lifetime, or below an inexact code


def is_either(key: int) -> bool:
    """Whether a rule of this key is in a list of both directions."""
    slot = key >> CODE_BITS & (SLOTS - 1)
    return slot < FIRST_PRICE_SLOT and slot % SLOTS_PER_WINDOW == EITHER


def holds_either(keys: Int64s) -> bool:
    """Whether any of the keys is."""
    return any(_part_holds_either(keys[at : at + CHUNK_ROWS]) for at in range(0, len(keys), CHUNK_ROWS))


def _part_holds_either(keys: Int64s) -> bool:
    slots = keys >> CODE_BITS & (SLOTS - 1)
    return bool(np.any((slots < FIRST_PRICE_SLOT) & (slots % SLOTS_PER_WINDOW == EITHER)))
