"""What a core keeps beyond its memory: one map of small blobs per key, as Flink's MapState offers it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol


class StateMap(Protocol):
    """Keyed state of one bucket or shard. Every value begins with a version byte.

    A core writes through it and holds its working set in memory; a core made on a non-empty map rebuilds that
    memory from it and goes on exactly where the writer of the map stood after its last whole record.
    """

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def remove(self, key: str) -> None: ...

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Everything, in no order to rely on. Nothing may be written meanwhile."""
        ...


@dataclass(frozen=True, slots=True)
class Output:
    """One keyed record to write. `timestamp_ms` is the newest event time in it (Kafka's record timestamp)."""

    key: str
    value: bytes
    timestamp_ms: int


@dataclass(slots=True)
class MemoryState:
    """StateMap in a dict: for tests, replays and benchmarks of the cores."""

    entries: dict[str, bytes] = field(default_factory=dict)

    def get(self, key: str) -> bytes | None:
        return self.entries.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.entries[key] = value

    def remove(self, key: str) -> None:
        self.entries.pop(key, None)

    def items(self) -> Iterator[tuple[str, bytes]]:
        yield from list(self.entries.items())

    def copy(self) -> MemoryState:
        """A checkpoint."""
        return MemoryState(dict(self.entries))
