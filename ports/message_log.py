"""The message log as services see it: keyed appends, reads by position. Kafka is one adapter (ports/kafka.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record as read."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    timestamp_ms: int


class LogError(RuntimeError):
    """The log refused or lost something; nothing after the last good `flush` may be taken as written."""


class TruncatedLogError(LogError):
    """The wanted position is no longer in the log: rebuild, don't skip."""

    def __init__(self, topic: str, partition: int, wanted: int, earliest: int) -> None:
        super().__init__(
            f"{topic}[{partition}]: position {wanted} is gone, the log begins at {earliest}; rebuild from the source"
        )
        self.topic, self.partition, self.wanted, self.earliest = topic, partition, wanted, earliest


class LogWriter(Protocol):
    """Appends in order per key. Durable only after `flush` returned."""

    def append(self, topic: str, key: bytes, value: bytes, timestamp_ms: int) -> None:
        """Hand a record over; may block while the buffer is full."""
        ...

    def flush(self) -> None:
        """Wait until everything handed over is acknowledged. Raises LogError if anything failed."""
        ...

    def close(self) -> None: ...


class LogReader(Protocol):
    """Reads partitions from given positions. Commits nothing: positions are the reader's own business."""

    def partitions(self, topic: str) -> int: ...

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        """(topic, partition) -> next offset to read; replaces what was assigned."""
        ...

    def poll(self, max_records: int, timeout_seconds: float) -> Sequence[LogRecord]:
        """Next records, in order per partition. Raises TruncatedLogError when a position is gone."""
        ...

    def begin_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> first offset that still exists."""
        ...

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> offset that the next record will get."""
        ...

    def close(self) -> None: ...
