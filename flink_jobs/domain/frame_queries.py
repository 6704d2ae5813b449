"""A metric frame's moves as key intervals for the index, all at once, and what each of them was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from contracts import frames_pb2 as pb
from flink_jobs.domain.shard_log_frames import MetricRows
from flink_jobs.domain.symbol_table import SymbolTable
from flink_jobs.domain.threshold_keys import (
    ABOVE,
    BELOW,
    CODE_BITS,
    DOWN,
    EITHER,
    FIRST_PRICE_SLOT,
    SLOTS_PER_WINDOW,
    UP,
    Int64s,
    threshold_codes,
)

NO_CHANGE: Final = -1
_PRICE_RANK: Final = 1_000  # behind every window
_NOTHING: Final[Int64s] = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Queries:
    """Columns, one row a query. Thresholds in [lowest, highest] of the list with key `base` are crossed.

    Queries of equal (tick, rank) are one move's: their rules fire in one order of (threshold, alert_id).
    """

    tick: Int64s
    rank: Int64s  # window * 2 + (0 rising, 1 falling), prices behind them
    change: Int64s  # row of the change, NO_CHANGE for a price
    base: Int64s
    lowest: Int64s
    highest: Int64s

    def where(self, wanted: NDArray[np.bool_]) -> Queries:
        """Those queries alone."""
        columns = (self.tick, self.rank, self.change, self.base, self.lowest, self.highest)
        return Queries(*(column[wanted] for column in columns))

    def key_intervals(self) -> tuple[Int64s, Int64s]:
        """First and last key of each, inclusive; an empty interval ends before it starts."""
        return self.base + threshold_codes(self.lowest), self.base + threshold_codes(self.highest)


def queries_of(
    frame: MetricRows, numbers: Int64s, symbols: SymbolTable, ticks: tuple[int, int], with_either: bool
) -> Queries:
    """Queries of the ticks [ticks[0], ticks[1]). `numbers`: symbol number of each tick row of the frame."""
    parts = [_change_queries(frame, numbers, symbols, ticks, UP)]
    if with_either:
        parts.append(_change_queries(frame, numbers, symbols, ticks, EITHER))
    parts += _price_queries(frame, numbers, symbols, ticks)
    return Queries(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _change_queries(
    frame: MetricRows, numbers: Int64s, symbols: SymbolTable, ticks: tuple[int, int], offset: int
) -> tuple[Int64s, ...]:
    """`offset` EITHER: in the lists that both directions search; UP: in the move's own direction's."""
    start, end = frame.change_row.searchsorted(ticks).tolist()
    rows, window = frame.change_row[start:end], frame.change_window[start:end]
    columns = {name: column[start:end] for name, column in frame.changes.items()}
    rises = columns["previous_floor_bps"] < columns["current_floor_bps"]
    falls = ~rises
    previous = np.where(rises, columns["previous_floor_bps"], columns["previous_negated_floor_bps"])
    current = np.where(rises, columns["current_floor_bps"], columns["current_negated_floor_bps"])
    slot = window * SLOTS_PER_WINDOW + (EITHER if offset == EITHER else np.where(rises, UP, DOWN))
    base = symbols.home_bases[numbers[rows]] + (slot << CODE_BITS)
    return rows, window * 2 + falls, np.arange(start, end), base, previous + 1, current


def _price_queries(
    frame: MetricRows, numbers: Int64s, symbols: SymbolTable, ticks: tuple[int, int]
) -> list[tuple[Int64s, ...]]:
    start, end = ticks
    price = frame.ticks["price_scaled"][start:end]
    previous = frame.ticks["previous_price_scaled"][start:end]
    moved: NDArray[np.bool_] = previous > 0
    split = symbols.has_splits[numbers[start:end]]
    rows = np.flatnonzero(moved & (price != previous) & ~split)
    price, previous, tick = price[rows], previous[rows], rows + start
    rises = price > previous
    falls = ~rises
    base = symbols.home_bases[numbers[tick]] + (FIRST_PRICE_SLOT + np.where(rises, ABOVE, BELOW) << CODE_BITS)
    lowest, highest = np.where(rises, previous + 1, price), np.where(rises, price, previous - 1)
    parts: list[tuple[Int64s, ...]] = [
        (tick, _PRICE_RANK + falls, np.full(len(tick), NO_CHANGE), base, lowest, highest)
    ]
    over_splits = np.flatnonzero(moved & split) + start
    if len(over_splits):
        parts.append(_split_price_queries(frame, numbers, symbols, over_splits))
    return parts


def _split_price_queries(frame: MetricRows, numbers: Int64s, symbols: SymbolTable, ticks: Int64s) -> tuple[Int64s, ...]:
    """Of symbols with splits: every basis has lists of its own."""
    queries = []
    columns = ("previous_price_scaled", "previous_event_time_ms", "price_scaled", "event_time_ms")
    for tick in ticks.tolist():
        number = int(numbers[tick])
        history = symbols.history(number)
        assert history is not None
        for crossing in history.crossings(*(int(frame.ticks[name][tick]) for name in columns)):
            base = symbols.price_base(number, crossing.pair, ABOVE if crossing.above else BELOW)
            rank = _PRICE_RANK + (not crossing.above)
            queries.append((tick, rank, NO_CHANGE, base, crossing.lowest, crossing.highest))
    return tuple(np.array(queries, np.int64).reshape(-1, 6).T)


def candidate_of(frame: MetricRows, queries: Queries, query: int) -> tuple[pb.Candidate, int]:
    """(the claim that a crossed rule of this query gets, without alert and version; its event time in ms)."""
    tick, rank, change = int(queries.tick[query]), int(queries.rank[query]), int(queries.change[query])
    value = {name: int(column[tick]) for name, column in frame.ticks.items()}
    candidate = pb.Candidate(
        event_time_ms=value["event_time_ms"],
        sequence=value["sequence"],
        session=value["session"],
        price_scaled=value["price_scaled"],
    )
    if change == NO_CHANGE:
        candidate.fired = pb.ABOVE if rank == _PRICE_RANK else pb.BELOW
        candidate.previous_price_scaled = value["previous_price_scaled"]
        candidate.previous_event_time_ms = value["previous_event_time_ms"]
    else:
        candidate.fired = pb.DOWN if rank % 2 else pb.UP
        candidate.window = rank // 2
        candidate.reference_time_ms = int(frame.changes["reference_time_ms"][change])
        candidate.reference_price_scaled = int(frame.changes["reference_price_scaled"][change])
        candidate.previous_bps = int(frame.changes["previous_floor_bps"][change])
        candidate.current_bps = int(frame.changes["current_floor_bps"][change])
    return candidate, value["event_time_ms"]
