"""A message log in memory, for tests and simulation: order, keys and positions as Kafka's, the same protocols."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from contracts.keys import partition_of
from ports.message_log import LogError, LogRecord, TruncatedLogError


class MemoryLog:
    """The topics. Readers and writers are handed out by `reader()` and `writer()`; any number, from any thread."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        """partitions: topic -> number of partitions."""
        self._lock = threading.Lock()
        self._records: dict[tuple[str, int], list[LogRecord]] = {
            (topic, p): [] for topic, count in partitions.items() for p in range(count)
        }
        self._begins: dict[tuple[str, int], int] = dict.fromkeys(self._records, 0)
        self._counts = dict(partitions)
        self.added = 0  # records, ever

    def reader(self) -> MemoryReader:
        return MemoryReader(self)

    def writer(self) -> MemoryWriter:
        return MemoryWriter(self)

    def topics(self) -> list[str]:
        return list(self._counts)

    def records(self, topic: str) -> list[LogRecord]:
        """Everything still in a topic, partition by partition."""
        with self._lock:
            return [r for (t, p), held in self._records.items() if t == topic for r in held[self._begins[t, p] :]]

    def truncate(self, topic: str, partition: int, before: int) -> None:
        """Forget what lies before an offset, as retention does."""
        with self._lock:
            self._begins[topic, partition] = before

    def count(self, topic: str) -> int:
        if topic not in self._counts:
            raise LogError(f"topic {topic} does not exist")
        return self._counts[topic]

    def add(self, records: Sequence[tuple[str, bytes, bytes, int]]) -> None:
        with self._lock:
            for topic, key, value, timestamp_ms in records:
                partition = partition_of(key, self.count(topic))
                held = self._records[topic, partition]
                held.append(LogRecord(topic, partition, len(held), key, value, timestamp_ms))
            self.added += len(records)

    def read(self, topic: str, partition: int, offset: int, limit: int) -> list[LogRecord]:
        with self._lock:
            begin = self._begins[topic, partition]
            if offset < begin:
                raise TruncatedLogError(topic, partition, offset, begin)
            return self._records[topic, partition][offset : offset + limit]

    def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        with self._lock:
            return {p: (self._begins[topic, p], len(self._records[topic, p])) for p in range(self.count(topic))}


class MemoryWriter:
    """Appends become readable at `flush`; what was not flushed when the writer is dropped is lost, as in a crash."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._buffer: list[tuple[str, bytes, bytes, int]] = []

    def append(self, topic: str, key: bytes, value: bytes, timestamp_ms: int) -> None:
        self._log.count(topic)
        self._buffer.append((topic, key, value, timestamp_ms))

    def flush(self) -> None:
        self._log.add(self._buffer)
        self._buffer = []

    def close(self) -> None:
        self.flush()


class MemoryReader:
    """Takes its partitions in turn, so that none starves."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._positions: dict[tuple[str, int], int] = {}
        self.paused: frozenset[int] = frozenset()  # partition numbers that polls leave alone, as a broker's may lag

    def partitions(self, topic: str) -> int:
        return self._log.count(topic)

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        for (topic, partition), offset in positions.items():
            self._log.read(topic, partition, offset, 0)
        self._positions = dict(positions)

    def poll(self, max_records: int, timeout_seconds: float) -> Sequence[LogRecord]:
        """Never waits: time is the caller's."""
        found: list[LogRecord] = []
        for (topic, partition), offset in list(self._positions.items()):
            if partition in self.paused:
                continue
            records = self._log.read(topic, partition, offset, max_records - len(found))
            found += records
            # the partition just read goes to the end of the turn
            self._positions[topic, partition] = self._positions.pop((topic, partition)) + len(records)
        return found

    def begin_offsets(self, topic: str) -> dict[int, int]:
        return {p: begin for p, (begin, _) in self._log.ends(topic).items()}

    def end_offsets(self, topic: str) -> dict[int, int]:
        return {p: end for p, (_, end) in self._log.ends(topic).items()}

    def close(self) -> None: ...
