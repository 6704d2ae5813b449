"""The feed's side of a scenario file (tests/scenarios/README.md): its ticks and heartbeats, in their order."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from feeds.domain.entry import Refusal, SourceEntry
from feeds.sources.entry_file import EntryFileSource
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


class ScenarioFileSource(EntryFileSource):
    """One partition, named after the file; a position is the number of the line, from 0. The end is a flush."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Raises SourceError when there is no such file."""
        if not path.is_file():
            raise SourceError(f"scenario source {path}: no such file; check ALERTS_FEED_SOURCE")
        self._path = path
        super().__init__(f"scenario:{path.name}", clock)

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
