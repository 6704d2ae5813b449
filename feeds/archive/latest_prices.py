"""Each symbol's newest accepted price, for whoever asks the API: in Postgres at most a second or a few later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np

from feeds.archive.accepted_ticks import AcceptedTicks

MAX_ROWS_A_WRITE: Final = 5_000  # once a second: 20 000 symbols that all move are seen every four seconds
MAX_WAITING_TICKS: Final = 1_000_000


class LatestPrice(NamedTuple):
    """price_scaled as the feed printed it."""

    symbol: str
    event_time_ms: int
    price_scaled: int
    log_offset: int


class LatestPriceStore(Protocol):
    """Where they are kept."""

    def write(self, prices: Sequence[LatestPrice]) -> None:
        """Each replaces what is stored of its symbol if it is newer: by event time, then log offset.

        Raises feeds.ports.StoreAwayError.
        """
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class LatestPrices:
    """Collects ticks and finds, once a write, which symbols have moved."""

    _newest: dict[str, LatestPrice] = field(default_factory=dict)
    _moved: dict[str, None] = field(default_factory=dict)  # in the order in which they have waited
    _ticks: list[tuple[AcceptedTicks, int]] = field(default_factory=list)
    _waiting: int = 0

    def add(self, ticks: AcceptedTicks, log_offset: int) -> None:
        self._ticks.append((ticks, log_offset))
        self._waiting += len(ticks.symbol)
        if self._waiting >= MAX_WAITING_TICKS:
            self._fold()

    def take(self) -> list[LatestPrice]:
        """At most MAX_ROWS_A_WRITE that are to be written, longest waiting first. `give_back` them when that fails."""
        self._fold()
        symbols = list(self._moved)[:MAX_ROWS_A_WRITE]
        for symbol in symbols:
            del self._moved[symbol]
        return [self._newest[symbol] for symbol in symbols]

    def give_back(self, prices: Sequence[LatestPrice]) -> None:
        self._moved = {**dict.fromkeys(price.symbol for price in prices), **self._moved}

    def _fold(self) -> None:
        """Newest row of each symbol: by time, the later of equal ones."""
        chunks, self._ticks, self._waiting = self._ticks, [], 0
        if not chunks:
            return
        numbers: dict[str, int] = {}
        symbol = []
        for ticks, _ in chunks:
            own = np.array([numbers.setdefault(name, len(numbers)) for name in ticks.symbols], np.int64)
            symbol.append(own[ticks.symbol])
        ids = np.concatenate(symbol)
        times = np.concatenate([ticks.event_time_ms for ticks, _ in chunks])
        prices = np.concatenate([ticks.price_scaled for ticks, _ in chunks])
        offsets = np.repeat([offset for _, offset in chunks], [len(ticks.symbol) for ticks, _ in chunks])
        order = np.lexsort((times, ids))
        last = order[np.flatnonzero(np.append(np.diff(ids[order]) != 0, True))]
        names = list(numbers)
        rows = zip(ids[last].tolist(), times[last].tolist(), prices[last].tolist(), offsets[last].tolist(), strict=True)
        for number, event_time_ms, price_scaled, offset in rows:
            name = names[number]
            known = self._newest.get(name)
            if known is None or (event_time_ms, offset) >= (known.event_time_ms, known.log_offset):
                self._newest[name] = LatestPrice(name, event_time_ms, price_scaled, offset)
                self._moved[name] = None
