"""Kafka behind the log protocols, with confluent-kafka (about 6 µs a message; kafka-python costs 45)."""

from __future__ import annotations

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

from ports.message_log import LogError, LogRecord, TruncatedLogError

METADATA_TIMEOUT_SECONDS: Final = 30.0
QUEUE_FULL_WAIT_SECONDS: Final = 1.0
DELIVERY_TIMEOUT_MS: Final = 120_000
FLUSH_TIMEOUT_SECONDS: Final = 150.0


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
                "message.max.bytes": 8_000_000,
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

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "group.id": f"{client_id}-positions-are-not-kept-here",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": False,
                "fetch.wait.max.ms": 20,
                "fetch.message.max.bytes": 8_000_000,
                "queued.max.messages.kbytes": 65_536,
                "isolation.level": "read_committed",
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

    def poll(self, max_records: int, timeout_seconds: float) -> Sequence[LogRecord]:
        records = []
        for message in self._consumer.consume(max_records, timeout_seconds):
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
        return records

    def _raise_unless_passing(self, error: KafkaError, message: Message) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            topic, partition = message.topic() or "?", message.partition() or 0
            earliest, _ = self._watermarks(topic, partition)
            raise TruncatedLogError(topic, partition, message.offset() or -1, earliest)
        if error.fatal() or not error.retriable():
            passing = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}
            if error.code() not in passing:
                raise LogError(error.str())

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
