"""Topics on a real broker."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource

import contracts.topics
from contracts.topics import ALL_TOPICS, MAX_RECORD_BYTES
from ports.kafka import KafkaReader, KafkaWriter
from stack.errors import StackError
from stack.topics import drop_topics, ensure_topics


@dataclass(frozen=True)
class Topic:
    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def prefix() -> str:
    return f"topics-{uuid.uuid4().hex[:8]}."


def counts(kafka: str, prefix: str) -> dict[str, int]:
    listed = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics
    return {name.removeprefix(prefix): len(t.partitions) for name, t in listed.items() if name.startswith(prefix)}


def test_environment_has_its_topics_and_loses_them(kafka: str, prefix: str) -> None:
    ensure_topics(kafka, prefix)
    ensure_topics(kafka, prefix)
    assert counts(kafka, prefix) == {topic.name: topic.partitions for topic in ALL_TOPICS}
    drop_topics(kafka, prefix)
    drop_topics(kafka, prefix)
    assert counts(kafka, prefix) == {}


def test_changed_partition_count_is_refused(kafka: str, prefix: str) -> None:
    ensure_topics(kafka, prefix, [Topic("prices.v1", 4)])
    with pytest.raises(StackError, match=r"prices\.v1 has 4 partitions and this version expects 8"):
        ensure_topics(kafka, prefix, [Topic("prices.v1", 8), Topic("new.v1", 1)])
    assert counts(kafka, prefix) == {"prices.v1": 4}, "a refused start makes nothing"
    drop_topics(kafka, prefix, [Topic("prices.v1", 4)])


def test_dead_broker_is_one_sentence() -> None:
    from stack import topics

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topics, "_TIMEOUT_S", 1.0)
        with pytest.raises(StackError, match=r"Kafka does not answer.*127\.0\.0\.1:1.*ALERTS_KAFKA"):
            ensure_topics("127.0.0.1:1", "x.")


@pytest.mark.parametrize("topic", ALL_TOPICS, ids=lambda topic: topic.name)
def test_every_topic_takes_the_largest_record_whatever_the_broker_is_set_to(
    topic: contracts.topics.Topic, kafka: str, prefix: str
) -> None:
    """The jobs' sinks are bound by the same constant; a broker's own bound is 1 MiB."""
    ensure_topics(kafka, prefix, [topic])
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic.named(prefix))
    client = AdminClient({"bootstrap.servers": kafka})
    (described,) = client.describe_configs([resource]).values()
    bound = described.result(30)["max.message.bytes"]
    assert bound.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert int(bound.value) > MAX_RECORD_BYTES
    writer = KafkaWriter(kafka, "test", log_level=0)
    largest = Random(1).randbytes(MAX_RECORD_BYTES - 1_000)  # incompressible; the producer counts its own framing
    for _ in range(2):
        writer.append(topic.named(prefix), b"k", largest, 1)
    writer.flush()
    reader = KafkaReader(kafka, "test")
    reader.assign(dict.fromkeys([(topic.named(prefix), p) for p in range(topic.partitions)], 0))
    found: list[int] = []
    until = time.monotonic() + 60
    while len(found) < 2 and time.monotonic() < until:
        found += [len(record.value) for record in reader.poll(10, 1.0)]
    assert found == [len(largest)] * 2
    reader.close()
    writer.close()
    drop_topics(kafka, prefix, [topic])


@pytest.mark.parametrize("event_time_ms", [1_000, 4_102_444_800_000])
def test_records_of_any_event_time_are_taken_and_kept(kafka: str, prefix: str, event_time_ms: int) -> None:
    """Old prices must not fall to a time retention, and a wild future stamp must not stop a producer."""
    ensure_topics(kafka, prefix)
    faults: list[object] = []
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 0})
    topic = f"{prefix}prices.v1"
    producer.produce(topic, b"x", timestamp=event_time_ms, partition=0, on_delivery=lambda e, _: faults.append(e))
    assert producer.flush(30) == 0
    assert faults == [None]
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": prefix, "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(30)
    assert message is not None
    assert (message.error(), message.value(), message.timestamp()[1]) == (None, b"x", event_time_ms)
    consumer.close()
    drop_topics(kafka, prefix)
