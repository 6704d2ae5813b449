"""What sources that read files to their end have in common: one partition of entries, from any position again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from itertools import islice

from feeds.domain.entry import SourceEntry
from feeds.domain.feed_clock import SourceState
from ports.clock import Clock


class EntryFileSource(ABC):
    """feeds.sources.source.Source over `_read`. Its end, once seen, is the proof of having caught up."""

    def __init__(self, name: str, clock: Clock) -> None:
        """name: of the partition. What `_read` needs must be there already; raises what it raises."""
        self._name = name
        self._clock = clock
        self._next = 0
        self._caught_up_at_ms: int | None = None
        self._entries = self._read(0)

    @abstractmethod
    def _read(self, position: int) -> Generator[SourceEntry, None, None]:
        """Entries from a position on."""

    def seek(self, positions: Mapping[str, int]) -> None:
        self._entries.close()
        self._next = positions.get(self._name, 0)
        self._entries = self._read(self._next)
        self._caught_up_at_ms = None

    def poll(self, max_entries: int, timeout_seconds: float) -> Sequence[SourceEntry]:
        entries = list(islice(self._entries, max_entries))
        if entries:
            self._next = entries[-1].position + 1
        if len(entries) < max_entries:
            self._caught_up_at_ms = self._clock.monotonic_ms()
        return entries

    def positions(self) -> Mapping[str, int]:
        return {self._name: self._next}

    def state(self) -> SourceState:
        return SourceState(connection=1, caught_up_at_ms=self._caught_up_at_ms)

    def close(self) -> None:
        self._entries.close()
