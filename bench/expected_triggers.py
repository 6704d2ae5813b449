"""Which alerts must have fired for a recorded load: each rule tried at each tick, in whole numbers.

Written from the semantics alone and shares no code with the product's cores, so it may judge them. It knows what
the bench's load needs: no splits, no lateness, every tick emitted, alerts active before the first tick.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

WIDTH_MS: Final = {"1m": 60_000, "1h": 3_600_000}
AGE_MS: Final = {"1m": 30_000, "1h": 600_000}


@dataclass(frozen=True, slots=True)
class BenchAlert:
    """`symbol` is an index; `threshold` is bps or a scaled target; `window` is None for a price."""

    alert_id: int
    symbol: int
    window: str | None
    direction: str
    threshold: int


@dataclass(frozen=True, slots=True)
class Series:
    """One symbol's ticks in order."""

    times_ms: Sequence[int]
    prices: Sequence[int]


def series_by_symbol(
    index: NDArray[np.int64], event_time: NDArray[np.int64], price: NDArray[np.int64]
) -> Mapping[int, Series]:
    """The load, taken apart; order within a symbol is kept."""
    order = np.argsort(index, kind="stable")
    symbols, starts = np.unique(index[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    times, prices = event_time[order].tolist(), price[order].tolist()
    return {
        int(symbol): Series(times[start:end], prices[start:end])
        for symbol, start, end in zip(symbols, starts.tolist(), ends, strict=True)
    }


def expected_triggers(alerts: Iterable[BenchAlert], series: Mapping[int, Series]) -> dict[int, int]:
    """alert_id -> event time at which it fires."""
    of_symbol: dict[int, list[BenchAlert]] = defaultdict(list)
    for alert in alerts:
        of_symbol[alert.symbol].append(alert)
    fired: dict[int, int] = {}
    for symbol, its_alerts in of_symbol.items():
        if symbol not in series:
            continue
        moves = {window: _changes(series[symbol], window) for window in WIDTH_MS}
        for alert in its_alerts:
            at_ms = _first(alert, series[symbol], moves)
            if at_ms is not None:
                fired[alert.alert_id] = at_ms
    return fired


def _first(
    alert: BenchAlert, ticks: Series, moves: Mapping[str, Sequence[tuple[int, tuple[int, int], tuple[int, int]]]]
) -> int | None:
    if alert.window is None:
        for k in range(1, len(ticks.prices)):
            last, price, target = ticks.prices[k - 1], ticks.prices[k], alert.threshold
            if last < target <= price if alert.direction == "ABOVE" else last > target >= price:
                return ticks.times_ms[k]
        return None
    for at_ms, previous, current in moves[alert.window]:
        up = not _reaches(previous, alert.threshold, 1) and _reaches(current, alert.threshold, 1)
        down = not _reaches(previous, alert.threshold, -1) and _reaches(current, alert.threshold, -1)
        if (up and alert.direction != "DOWN") or (down and alert.direction != "UP"):
            return at_ms
    return None


def _reaches(change: tuple[int, int], bps: int, sign: int) -> bool:
    """Whether sign * change >= bps, for a change of (difference, reference price)."""
    difference, reference = change
    return sign * difference * 10_000 >= bps * reference


def _changes(ticks: Series, window: str) -> list[tuple[int, tuple[int, int], tuple[int, int]]]:
    """(event time, previous change, current change) wherever both are defined."""
    found = []
    previous: tuple[int, int] | None = None
    for k, (at_ms, price) in enumerate(zip(ticks.times_ms, ticks.prices, strict=True)):
        wanted = at_ms - WIDTH_MS[window]
        place = bisect_right(ticks.times_ms, wanted, 0, k + 1) - 1
        if place < 0 or wanted - ticks.times_ms[place] > AGE_MS[window]:
            previous = None
            continue
        current = (price - ticks.prices[place], ticks.prices[place])
        if previous is not None:
            found.append((at_ms, previous, current))
        previous = current
    return found
