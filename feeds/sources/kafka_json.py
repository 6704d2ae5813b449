"""JSON messages of a Kafka topic (`ticks.v1`), one entry a message, anybody's producer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from feeds.domain.entry import SourceEntry
from feeds.domain.feed_clock import SourceState
from feeds.sources.source import read_json
from ports.clock import Clock
from ports.message_log import LogReader

PROOF_INTERVAL_MS: Final = 1_000  # how often the ends of the partitions are asked for


class KafkaJsonSource:
    """Partition names are `ticks.v1/0`, … without the environment's prefix; a position is Kafka's offset.

    A broker that is away makes `poll` raise LogError in time; the gateway is then opened anew, as another connection.
    """

    def __init__(self, reader: LogReader, topic: str, name: str, clock: Clock) -> None:
        """topic: as Kafka knows it; name: as positions name it."""
        self._reader = reader
        self._topic = topic
        self._clock = clock
        self._names = [f"{name}/{partition}" for partition in range(reader.partitions(topic))]
        self._next = [0] * len(self._names)
        self._asked_ms = clock.monotonic_ms() - PROOF_INTERVAL_MS
        self._caught_up_at_ms: int | None = None

    def seek(self, positions: Mapping[str, int]) -> None:
        """A beginning that retention has moved is where reading begins; a named position that is gone is an error."""
        begins = self._reader.begin_offsets(self._topic)
        self._next = [positions.get(name, 0) or begins[partition] for partition, name in enumerate(self._names)]
        self._reader.assign({(self._topic, partition): offset for partition, offset in enumerate(self._next)})
        self._caught_up_at_ms = None

    def poll(self, max_entries: int, timeout_seconds: float) -> Sequence[SourceEntry]:
        names, following = self._names, self._next
        entries = []
        for record in self._reader.poll(max_entries, timeout_seconds):
            value = record.value
            entries.append(SourceEntry(names[record.partition], record.offset, read_json(value), value))
            following[record.partition] = record.offset + 1
        self._prove()
        return entries

    def _prove(self) -> None:
        """Everything that was there at this moment has been handed over, or not."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._asked_ms < PROOF_INTERVAL_MS:
            return
        self._asked_ms = now_ms
        ends = self._reader.end_offsets(self._topic)
        there = all(self._next[partition] >= end for partition, end in ends.items())
        self._caught_up_at_ms = now_ms if there else None

    def positions(self) -> Mapping[str, int]:
        return dict(zip(self._names, self._next, strict=True))

    def state(self) -> SourceState:
        return SourceState(connection=1, caught_up_at_ms=self._caught_up_at_ms)

    def close(self) -> None:
        self._reader.close()
