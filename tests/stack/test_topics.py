"""Topics on a real broker."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from contracts.topics import ALL_TOPICS
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
