"""A feed's messages into ticks.v1, as any producer would write them, in one order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from ports.clock import Clock
from ports.message_log import LogWriter

MAX_UNACKNOWLEDGED: Final = 20_000


class TickLog:
    """One feed's writer. Marker numbers rise from 1: a feed has one such writer in its life."""

    def __init__(self, writer: LogWriter, topic: str, feed: str, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._topic = topic
        self._feed = feed
        self._marker_id = 0
        self._unflushed = 0

    def tick(self, symbol: str, fields: Mapping[str, Any]) -> None:
        self._append({"symbol": symbol, **fields})

    def heartbeat(self, frontier_ms: int) -> None:
        self._append({"type": "heartbeat", "ts": frontier_ms})

    def finish(self) -> None:
        """The source has ended."""
        self._append({"type": "flush"})

    def mark(self) -> int:
        """Write the next marker and wait until the broker has everything; the marker's number."""
        self._marker_id += 1
        self._append({"type": "marker", "marker_id": self._marker_id})
        self.flush()
        return self._marker_id

    def flush(self) -> None:
        self._writer.flush()
        self._unflushed = 0

    def _append(self, body: Mapping[str, Any]) -> None:
        """Stamped with this moment, not the event time: a broker that restarts forgets producers whose stamps are old.

        Then it would keep a batch twice that this producer had to send again.
        """
        self._writer.append(self._topic, b"", orjson.dumps({"feed": self._feed, **body}), self._clock.wall_ms())
        self._unflushed += 1
        if self._unflushed >= MAX_UNACKNOWLEDGED:
            self.flush()
