"""Turns "from where" into an offset for every partition, so that the source never falls back on a reset.

Flink's own `earliest()` also sets auto.offset.reset: when a log was truncated behind a savepoint, the job would
skip what is missing without a word. With offsets for all partitions the reset strategy can be NONE: it fails instead.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from flink_jobs.arguments import StartAt

TIMEOUT_SECONDS: Final = 30.0


class StartError(RuntimeError):
    """The topic can't be read from there; `topic` is the topic."""

    def __init__(self, topic: str, what: str) -> None:
        super().__init__(f"topic {topic}: {what}")
        self.topic = topic


def resolve_start(bootstrap: str, topic: str, start: StartAt) -> dict[int, int]:
    """Offset to begin at for every partition of a topic. Raises StartError."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "start-offsets", "enable.auto.commit": False, "log_level": 2}
    )
    try:
        return _resolve(consumer, topic, start)
    except KafkaException as error:
        raise StartError(topic, f"{bootstrap} does not tell its offsets: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _resolve(consumer: Consumer, topic: str, start: StartAt) -> dict[int, int]:
    found = consumer.list_topics(topic, TIMEOUT_SECONDS).topics[topic]
    if found.error is not None or not found.partitions:
        raise StartError(topic, "does not exist; make the topics first (`./alerts up` does)")
    bounds = {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_SECONDS)
        for partition in sorted(found.partitions)
    }
    if start.kind == "timestamp":
        wanted = [TopicPartition(topic, partition, start.timestamp_ms) for partition in bounds]
        times = {at.partition: at.offset for at in consumer.offsets_for_times(wanted, TIMEOUT_SECONDS)}
        # a negative offset says that every record is older: begin at the end
        return {partition: times[partition] if times[partition] >= 0 else end for partition, (_, end) in bounds.items()}
    if start.kind == "offsets":
        return _check(topic, dict(start.offsets), bounds)
    return {partition: begin for partition, (begin, _) in bounds.items()}


def _check(topic: str, offsets: dict[int, int], bounds: dict[int, tuple[int, int]]) -> dict[int, int]:
    if offsets.keys() != bounds.keys():
        raise StartError(topic, f"has the partitions {sorted(bounds)}, offsets were given for {sorted(offsets)}")
    for partition, (begin, end) in bounds.items():
        if not begin <= offsets[partition] <= end:
            raise StartError(topic, f"partition {partition} holds offsets {begin} to {end}, not {offsets[partition]}")
    return offsets
