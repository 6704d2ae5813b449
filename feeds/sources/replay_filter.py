"""What a source says again: after a reconnect, or because a poll finds what the last one found."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MAX_REMEMBERED: Final = 200_000  # ticks: OVERLAP_MS at 20 000 a second, some 40 MB
MAX_SYMBOLS: Final = 200_000
OVERLAP_MS: Final = 10_000


class _Symbol:
    __slots__ = ("last", "newest_ms", "replays_to_ms")

    def __init__(self) -> None:
        self.newest_ms = 0
        self.replays_to_ms = 0  # after a reconnect: up to here ticks may come again
        self.last: object = None


class ReplayFilter:
    """Ticks with an id of the source's are known by it. Those without are known by (time, price), but only while a
    replay is possible: two trades at one price in one millisecond are two ticks, and the second may come after another.
    A repeat that is older than what is remembered is late for the rolling job, which counts it and evaluates nothing.
    """

    def __init__(self, frontier_ms: int) -> None:
        """frontier_ms: where the feed was; nothing at or before it is taken, it would only be late."""
        self._frontier_ms = frontier_ms
        self._symbols: dict[str, _Symbol] = {}
        self._seen: OrderedDict[tuple[str, object], None] = OrderedDict()

    def newest_ms(self, symbol: str) -> int:
        """Newest time that was taken of a symbol; where the feed was, before the first."""
        known = self._symbols.get(symbol)
        return known.newest_ms if known else self._frontier_ms

    def since_ms(self) -> int:
        """From here on a stream has to send again: its newest time, less what may have overtaken."""
        newest = max((known.newest_ms for known in self._symbols.values()), default=0)
        return max(self._frontier_ms, newest - OVERLAP_MS)

    def reconnected(self) -> None:
        """From now on each symbol's ticks may be repeats, until one is newer."""
        for known in self._symbols.values():
            known.replays_to_ms = known.newest_ms

    def is_repeat(self, symbol: str, key: object, event_time_ms: int, *, is_id: bool) -> bool:
        """Whether it was taken before; else it is now. key: the source's id, or what it said of time and price."""
        if event_time_ms <= self._frontier_ms:
            return True
        known = self._symbols.get(symbol)
        if known is None:
            if len(self._symbols) >= MAX_SYMBOLS:
                return False
            known = self._symbols[symbol] = _Symbol()
        named = (symbol, key)
        if key == known.last or (named in self._seen and (is_id or event_time_ms <= known.replays_to_ms)):
            return True
        known.last = key
        known.newest_ms = max(known.newest_ms, event_time_ms)
        self._seen[named] = None
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)
        return False
