"""A feed's messages into ticks.v1, as any producer would write them, in one order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from contracts.event_time import MAX_EVENT_TIME_MS, EventTimeError, parse_event_time
from ports.message_log import LogWriter

MAX_UNACKNOWLEDGED: Final = 20_000


class TickLog:
    """One feed's writer. Marker numbers rise from 1: a feed has one such writer in its life."""

    def __init__(self, writer: LogWriter, topic: str, feed: str) -> None:
        self._writer = writer
        self._topic = topic
        self._feed = feed
        self._marker_id = 0
        self._unflushed = 0

    def tick(self, symbol: str, fields: Mapping[str, Any]) -> None:
        self._append({"symbol": symbol, **fields}, _timestamp_ms(fields.get("ts")))

    def heartbeat(self, frontier_ms: int) -> None:
        self._append({"type": "heartbeat", "ts": frontier_ms}, frontier_ms)

    def finish(self) -> None:
        """The source has ended."""
        self._append({"type": "flush"}, 0)

    def mark(self) -> int:
        """Write the next marker and wait until the broker has everything; the marker's number."""
        self._marker_id += 1
        self._append({"type": "marker", "marker_id": self._marker_id}, 0)
        self.flush()
        return self._marker_id

    def flush(self) -> None:
        self._writer.flush()
        self._unflushed = 0

    def _append(self, body: Mapping[str, Any], timestamp_ms: int) -> None:
        self._writer.append(self._topic, b"", orjson.dumps({"feed": self._feed, **body}), timestamp_ms)
        self._unflushed += 1
        if self._unflushed >= MAX_UNACKNOWLEDGED:
            self.flush()


def _timestamp_ms(value: object) -> int:
    """A record's stamp; what names no moment is the gateway's to refuse."""
    try:
        return min(max(0, parse_event_time(value)), MAX_EVENT_TIME_MS)
    except EventTimeError:
        return 0
