"""How far readers are behind, per topic: end offsets against committed groups and the finalizer's own positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from contracts.topics import ALL_TOPICS, PRICES
from sql.server import read_consumer_positions

_TIMEOUT_S = 5.0
# The finalizer keeps its offsets in Postgres, in the transaction of its work.
_FINALIZER = "finalizer"
# The archive keeps its own beside its files, and tells how far it has read in its health file.
ARCHIVE = "archive"


@dataclass(frozen=True)
class TopicLag:
    """One topic: records in it, and for each known reader how many it hasn't read."""

    topic: str
    partitions: int
    records: int
    lag: dict[str, int] = field(default_factory=dict)


def measure_lag(
    bootstrap_servers: str,
    dsn: str,
    prefix: str,
    schema: str,
    price_readers: Mapping[str, Mapping[int, int]] | None = None,
) -> list[TopicLag]:
    """Every topic of the environment. A part that doesn't answer leaves its readers out.

    price_readers: name -> partition -> next offset of those that keep their own positions in prices.v1.
    """
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    names = {topic.named(prefix) for topic in ALL_TOPICS}
    try:
        listed = client.list_topics(timeout=_TIMEOUT_S).topics
        partitions = [
            TopicPartition(name, number) for name in names & set(listed) for number in listed[name].partitions
        ]
        ends = _offsets(client, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        begins = _offsets(client, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        readers = _committed(client, names)
    except KafkaException:
        return []
    for key, offset in _finalizer_positions(dsn, schema, names, prefix).items():
        readers.setdefault(_FINALIZER, {})[key] = offset
    for reader, positions in (price_readers or {}).items():
        for partition, offset in positions.items():
            readers.setdefault(reader, {})[PRICES.named(prefix), partition] = offset
    rows = []
    for name in sorted(names & set(listed)):
        keys = [key for key in ends if key[0] == name]
        lag = {
            reader: sum(max(0, ends[key] - positions[key]) for key in keys if key in positions)
            for reader, positions in sorted(readers.items())
            if any(key in positions for key in keys)
        }
        rows.append(TopicLag(name, len(keys), sum(ends[key] - begins.get(key, 0) for key in keys), lag))
    return rows


def read_positions(detail: Mapping[str, Any]) -> dict[int, int]:
    """Partition -> next offset of a service's health detail; empty when it tells none."""
    return {int(partition): int(offset) for partition, offset in detail.get("positions", {}).items()}


def _offsets(client: AdminClient, partitions: list[TopicPartition], which: OffsetSpec) -> dict[tuple[str, int], int]:
    if not partitions:
        return {}
    futures = client.list_offsets(dict.fromkeys(partitions, which), request_timeout=_TIMEOUT_S)
    return {(p.topic, p.partition): future.result().offset for p, future in futures.items()}


def _committed(client: AdminClient, topics: set[str]) -> dict[str, dict[tuple[str, int], int]]:
    """Group → partition → committed offset."""
    groups = client.list_consumer_groups(request_timeout=_TIMEOUT_S).result().valid or []
    found: dict[str, dict[tuple[str, int], int]] = {}
    for group in groups:
        request = [ConsumerGroupTopicPartitions(group.group_id)]
        future = client.list_consumer_group_offsets(request, request_timeout=_TIMEOUT_S)[group.group_id]
        for partition in future.result().topic_partitions or []:
            if partition.topic in topics and partition.offset >= 0:
                found.setdefault(group.group_id, {})[partition.topic, partition.partition] = partition.offset
    return found


def _finalizer_positions(dsn: str, schema: str, topics: set[str], prefix: str) -> dict[tuple[str, int], int]:
    rows = read_consumer_positions(dsn, schema)
    # stored with or without the environment's prefix
    named = [(topic if topic in topics else f"{prefix}{topic}", partition, offset) for topic, partition, offset in rows]
    return {(topic, partition): offset for topic, partition, offset in named}
