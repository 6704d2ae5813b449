"""The message log of a simulation: ports.memory_log with turns, and with what a broker does to a producer's batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from ports.memory_log import MemoryLog, MemoryReader
from ports.message_log import LogError, LogRecord
from simulation.turns import Turns

MAX_POLLED: Final = 12
Batch = list[tuple[str, bytes, bytes, int]]


class BatchFault(StrEnum):
    """What becomes of a flushed batch."""

    REFUSED = "refused"  # nothing is written, the producer is told
    HOLE = "hole"  # a record is lost and its successors are kept; the producer is told
    TAIL_LOST = "tail_lost"  # only the first records are kept; the producer is told
    UNACKNOWLEDGED = "unacknowledged"  # all is written, the producer hears that nothing was
    TWICE = "twice"  # all is written twice, the producer hears that all is well


class SimulatedLog:
    """The topics. `fault_of` is asked once a flush; it gives None, or what befalls the batch and which record of it."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        turns: Turns,
        fault_of: Callable[[int], tuple[BatchFault, int] | None],
        draw: Callable[[int], int],
    ) -> None:
        """draw: a number below the given one; a poll gets at most so many records. The attributes below: see Plan."""
        self.memory = MemoryLog(partitions)
        self.partitions = max(partitions.values())
        self.turns, self.fault_of, self.draw = turns, fault_of, draw
        self.lags_one_poll_in = self.max_lag_polls = 0
        self.behind: Callable[[str], frozenset[int]] | None = None  # partitions of a topic that its readers leave alone

    def reader(self) -> SimulatedReader:
        return SimulatedReader(self)

    def writer(self) -> SimulatedWriter:
        return SimulatedWriter(self)


class SimulatedWriter:
    """ports.message_log.LogWriter."""

    def __init__(self, log: SimulatedLog) -> None:
        self._log = log
        self._batch: Batch = []
        self._failure: str | None = None

    def append(self, topic: str, key: bytes, value: bytes, timestamp_ms: int) -> None:
        if self._failure:
            raise LogError(self._failure)
        self._log.memory.count(topic)
        self._batch.append((topic, key, value, timestamp_ms))

    def flush(self) -> None:
        if self._failure:
            raise LogError(self._failure)
        batch, self._batch = self._batch, []
        if not batch:
            return
        self._log.turns.pause("log.flush")
        fault = self._log.fault_of(len(batch))
        if fault is not None:
            batch = self._spoil(batch, *fault)
        self._log.memory.add(batch)
        if self._failure:
            raise LogError(self._failure)
        self._log.turns.pause("log.flushed")

    def _spoil(self, batch: Batch, fault: BatchFault, at: int) -> Batch:
        if fault is BatchFault.TWICE:
            return batch + batch
        self._failure = f"simulated: {fault}"
        if fault is BatchFault.REFUSED:
            return []
        if fault is BatchFault.HOLE:
            return batch[:at] + batch[at + 1 :]
        return batch[:at] if fault is BatchFault.TAIL_LOST else batch

    def close(self) -> None:
        """What was not flushed is lost: a process that closes may be one that is dying."""
        self._batch = []


class SimulatedReader:
    """ports.message_log.LogReader."""

    def __init__(self, log: SimulatedLog) -> None:
        self._log, self._reader = log, MemoryReader(log.memory)
        self._lag_polls = 0
        self._topic = ""

    def partitions(self, topic: str) -> int:
        return self._reader.partitions(topic)

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        self._reader.assign(positions)
        self._topic = next((topic for topic, _ in positions), "")

    def poll(self, max_records: int, timeout_seconds: float) -> Sequence[LogRecord]:
        self._log.turns.pause("log.poll")
        if self._log.behind is not None:
            self._reader.paused = self._log.behind(self._topic)
        elif self._log.lags_one_poll_in:
            self._lag()
        elif self._reader.paused:
            self._reader.paused = frozenset()
        return self._reader.poll(min(max_records, 1 + self._log.draw(MAX_POLLED)), 0)

    def _lag(self) -> None:
        """Now and then one partition is left alone for some polls."""
        draw = self._log.draw
        self._lag_polls = max(0, self._lag_polls - 1)
        if not self._lag_polls:
            self._reader.paused = frozenset()
            if draw(self._log.lags_one_poll_in) == 0:
                self._reader.paused = frozenset({draw(self._log.partitions)})
                self._lag_polls = 1 + draw(self._log.max_lag_polls)

    def begin_offsets(self, topic: str) -> dict[int, int]:
        return self._reader.begin_offsets(topic)

    def end_offsets(self, topic: str) -> dict[int, int]:
        self._log.turns.pause("log.ends")
        return self._reader.end_offsets(topic)

    def close(self) -> None:
        self._reader.close()
