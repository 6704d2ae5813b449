"""Kafka behind the log protocols, with confluent-kafka (about 6 µs a message; kafka-python costs 45)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from contracts.topics import MAX_RECORD_BYTES
from ports.message_log import LogError, LogRecord, TruncatedLogError

METADATA_TIMEOUT_SECONDS: Final = 30.0
QUEUE_FULL_WAIT_SECONDS: Final = 1.0
DELIVERY_TIMEOUT_MS: Final = 120_000
FLUSH_TIMEOUT_SECONDS: Final = 150.0
UNREACHABLE_LIMIT_SECONDS: Final = 30.0  # a reader that hears only errors for so long asks the broker, and fails
PROBE_TIMEOUT_SECONDS: Final = 5.0
# The client tries again by itself after these; it never says that they are over.
PASSING_ERRORS: Final = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE})


class KafkaWriter:
    """Idempotent, acks=all, murmur2 partitioning as the Java producer's."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        linger_ms: int = 2,
        log_level: int = 6,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
    ) -> None:
        """delivery_timeout_ms: a record that is not acknowledged by then has failed.
        log_level: how much librdkafka itself says on stderr, as syslog counts (2: critical, 6: informational).
        """
        self._failure: str | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "acks": "all",
                "delivery.timeout.ms": delivery_timeout_ms,
                "linger.ms": linger_ms,
                "log_level": log_level,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 500_000,
                "message.max.bytes": MAX_RECORD_BYTES,
            }
        )

    def append(self, topic: str, key: bytes, value: bytes, timestamp_ms: int) -> None:
        if self._failure:
            raise LogError(self._failure)
        while True:
            try:
                self._producer.produce(topic, value, key, timestamp=timestamp_ms, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(QUEUE_FULL_WAIT_SECONDS)
            except KafkaException as error:
                raise LogError(f"{topic}: {error.args[0].str()}") from error
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = f"{message.topic()}: a record was not acknowledged: {error.str()}"

    def flush(self) -> None:
        left = self._producer.flush(FLUSH_TIMEOUT_SECONDS)
        if self._failure:
            raise LogError(self._failure)
        if left:
            raise LogError(f"{left} records were not acknowledged within {FLUSH_TIMEOUT_SECONDS:.0f} s")

    def close(self) -> None:
        self._producer.flush(5.0)


class KafkaReader:
    """A consumer without a group: its positions are assigned, never committed to Kafka."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        unreachable_limit_seconds: float = UNREACHABLE_LIMIT_SECONDS,
        gather_seconds: float | None = None,
    ) -> None:
        """gather_seconds: `poll` returns so long after its first record, so that its timeout only matters while the
        log is quiet. None: it takes its whole timeout, unless max_records come before.
        """
        self._gather_seconds = gather_seconds
        self._unreachable_limit_seconds = unreachable_limit_seconds
        self._failing_since: float | None = None  # monotonic; the first passing error since the last record
        self._assigned: list[tuple[str, int]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "group.id": f"{client_id}-positions-are-not-kept-here",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": False,
                "fetch.wait.max.ms": 100,  # of a quiet topic; the broker answers at once when something comes
                "fetch.message.max.bytes": MAX_RECORD_BYTES,
                "queued.max.messages.kbytes": 65_536,
                "isolation.level": "read_committed",
                # without it the client only logs that brokers are away, and `poll` looks like an idle topic
                "error_cb": self._note_outage,
            }
        )

    def partitions(self, topic: str) -> int:
        try:
            found = self._consumer.list_topics(topic, METADATA_TIMEOUT_SECONDS).topics[topic]
        except KafkaException as error:
            raise LogError(f"Kafka does not answer about topic {topic}: {error.args[0].str()}") from error
        if found.error is not None or not found.partitions:
            raise LogError(f"topic {topic} does not exist; `./alerts up` creates it")
        return len(found.partitions)

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        wanted = []
        for (topic, partition), offset in positions.items():
            earliest, _ = self._watermarks(topic, partition)
            if offset < earliest:
                raise TruncatedLogError(topic, partition, offset, earliest)
            wanted.append(TopicPartition(topic, partition, offset if offset else OFFSET_BEGINNING))
        self._consumer.assign(wanted)
        self._assigned, self._failing_since = list(positions), None

    def poll(self, max_records: int, timeout_seconds: float) -> Sequence[LogRecord]:
        """As LogReader; raises LogError too when the brokers have been away for the limit."""
        records = []
        for message in self._consume(max_records, timeout_seconds):
            error = message.error()
            if error is not None:
                self._raise_unless_passing(error, message)
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            records.append(
                LogRecord(
                    topic, partition, offset, message.key() or b"", message.value() or b"", message.timestamp()[1]
                )
            )
        if records:
            self._failing_since = None
        elif self._failing_since is not None:
            self._probe(self._failing_since)
        return records

    def _consume(self, max_records: int, timeout_seconds: float) -> list[Message]:
        if self._gather_seconds is None:
            return self._consumer.consume(max_records, timeout_seconds)
        found = self._consumer.consume(1, timeout_seconds)
        if found and max_records > 1:
            found += self._consumer.consume(max_records - 1, self._gather_seconds)
        return found

    @property
    def is_failing(self) -> bool:
        """Whether the client has told of an outage since the last record or answered question."""
        return self._failing_since is not None

    def _probe(self, failing_since: float) -> None:
        """An idle topic brings no record that would show that an outage is over: past the limit, ask the leaders."""
        failing_seconds = time.monotonic() - failing_since
        if failing_seconds < self._unreachable_limit_seconds:
            return
        for topic, partition in self._assigned:
            try:
                self._consumer.get_watermark_offsets(TopicPartition(topic, partition), PROBE_TIMEOUT_SECONDS)
            except KafkaException as error:
                raise LogError(
                    f"{topic}[{partition}]: no broker has answered for {failing_seconds:.0f} s: {error.args[0].str()}"
                ) from error
        self._failing_since = None

    def _raise_unless_passing(self, error: KafkaError, message: Message) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            topic, partition = message.topic() or "?", message.partition() or 0
            earliest, _ = self._watermarks(topic, partition)
            raise TruncatedLogError(topic, partition, message.offset() or -1, earliest)
        if (error.fatal() or not error.retriable()) and error.code() not in PASSING_ERRORS:
            raise LogError(error.str())
        self._note_outage(error)

    def _note_outage(self, error: KafkaError) -> None:
        """Called by the client within `poll`; of other errors the record or the call that met them tells."""
        if error.code() in PASSING_ERRORS and self._failing_since is None:
            self._failing_since = time.monotonic()

    def begin_offsets(self, topic: str) -> dict[int, int]:
        return {p: self._watermarks(topic, p)[0] for p in range(self.partitions(topic))}

    def end_offsets(self, topic: str) -> dict[int, int]:
        return {p: self._watermarks(topic, p)[1] for p in range(self.partitions(topic))}

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        try:
            found = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), METADATA_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise LogError(f"Kafka does not answer about {topic}[{partition}]: {error.args[0].str()}") from error
        if found is None:
            raise LogError(f"{topic}[{partition}]: the broker did not answer within {METADATA_TIMEOUT_SECONDS:.0f} s")
        return found

    def close(self) -> None:
        self._consumer.close()
