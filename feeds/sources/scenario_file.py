"""The feed's side of a scenario file (tests/scenarios/README.md): its ticks and heartbeats, in their order."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from feeds.domain.entry import Refusal, SourceEntry
from feeds.domain.feed_clock import SourceState
from feeds.sources.source import SourceError, read_json
from ports.clock import Clock

_TICK_FIELDS: Final = ("symbol", "ts", "price", "seq", "session")


def scenario_message(op: Mapping[str, Any], feed: str | None = None) -> dict[str, Any] | None:
    """The `ticks.v1` message of a scenario operation; None when it is not the feed's to say (create, split, …).

    Ticks pass as they are, rubbish included: that is the gateway's to judge. feed None: the message names none.
    """
    named = {} if feed is None else {"feed": feed}
    if op.get("op") == "tick":
        return named | {field: op[field] for field in _TICK_FIELDS if field in op}
    if op.get("op") == "heartbeat":
        return named | {"type": "heartbeat", "ts": op.get("ts")}
    return None


def scenario_message_bytes(op: Mapping[str, Any], feed: str | None = None) -> bytes | None:
    """The same as it goes to Kafka."""
    message = scenario_message(op, feed)
    return None if message is None else orjson.dumps(message)


class ScenarioFileSource:
    """One partition, named after the file; a position is the number of the line, from 0. The end is a flush."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Raises SourceError when there is no such file."""
        self._path = path
        self._clock = clock
        self._name = f"scenario:{path.name}"
        self._next = 0
        self._caught_up_at_ms: int | None = None
        if not path.is_file():
            raise SourceError(f"scenario source {path}: no such file; check ALERTS_FEED_SOURCE")
        self._entries = self._read(0)

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

    def _read(self, position: int) -> Generator[SourceEntry, None, None]:
        line_number = -1
        with self._path.open("rb") as file:
            for line_number, line in enumerate(file):
                text = line.strip()
                if line_number < position or not text or text.startswith(b"#"):
                    continue
                op = read_json(text)
                if isinstance(op, dict):
                    message = scenario_message(op)
                    if message is not None:
                        yield SourceEntry(self._name, line_number, message, text)
                elif isinstance(op, Refusal):
                    yield SourceEntry(self._name, line_number, op, text)
        if position <= line_number + 1:
            yield SourceEntry(self._name, line_number + 1, {"type": "flush"}, b"")
