"""What the gateway needs of any source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import orjson

from contracts.dead_letter import Reason
from feeds.domain.entry import Refusal, SourceEntry
from feeds.domain.feed_clock import SourceState

MAX_ENTRY_BYTES: Final = 65_536


class Source(Protocol):
    """Entries in order per partition, from any position again: nothing is acknowledged to it."""

    def seek(self, positions: Mapping[str, int]) -> None:
        """Go on at these positions (partition -> next); partitions that are not named begin at their beginning."""
        ...

    def poll(self, max_entries: int, timeout_seconds: float) -> Sequence[SourceEntry]:
        """Next entries. What can't be read is an entry too, whose body says why. Raises when the source is away."""
        ...

    def positions(self) -> Mapping[str, int]:
        """Next position per partition: everything before has been handed over."""
        ...

    def state(self) -> SourceState:
        """Connection and proof of having caught up, as of the last poll."""
        ...

    def close(self) -> None: ...


class SourceError(RuntimeError):
    """A source that can't be opened or read; says which and what to do."""


def read_json(raw: bytes) -> object:
    """The JSON value, or a Refusal. Bounded in size; orjson bounds the nesting."""
    if len(raw) > MAX_ENTRY_BYTES:
        return Refusal(Reason.TOO_LONG, f"{len(raw)} bytes, at most {MAX_ENTRY_BYTES} are read")
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return Refusal(Reason.UNREADABLE, f"not JSON: {error}")
