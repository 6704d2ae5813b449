"""Kafka topics of an environment: made when missing, and a start refused when their partitions have changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from contracts.topics import ALL_TOPICS
from stack.errors import StackError

_TIMEOUT_S = 30.0


class TopicLike(Protocol):
    """`contracts.topics.Topic`."""

    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> int: ...
    @property
    def config(self) -> dict[str, str]: ...


def ensure_topics(bootstrap_servers: str, prefix: str, topics: Iterable[TopicLike] = ALL_TOPICS) -> None:
    """Make what is missing. Keys are placed by partition count, so another count means lost order: refused."""
    wanted = {f"{prefix}{topic.name}": topic for topic in topics}
    client = _client(bootstrap_servers)
    present = _partition_counts(client, bootstrap_servers)
    for name, topic in wanted.items():
        found = present.get(name)
        if found is not None and found != topic.partitions:
            raise StackError(
                f"topic {name} has {found} partitions and this version expects {topic.partitions}",
                where=bootstrap_servers,
                remedy="keys would move between partitions; use another ALERTS_TOPIC_PREFIX, or migrate it",
            )
    missing = [
        NewTopic(name, num_partitions=topic.partitions, replication_factor=-1, config=dict(topic.config))
        for name, topic in wanted.items()
        if name not in present
    ]
    if missing:
        _await(client.create_topics(missing, operation_timeout=_TIMEOUT_S), KafkaError.TOPIC_ALREADY_EXISTS)
        # the controller knows them before the broker that clients ask does
        _await_listing(client, bootstrap_servers, lambda names: wanted.keys() <= names)


def drop_topics(bootstrap_servers: str, prefix: str, topics: Iterable[TopicLike] = ALL_TOPICS) -> None:
    """Delete an environment's topics with all that is in them."""
    client = _client(bootstrap_servers)
    present = _partition_counts(client, bootstrap_servers)
    names = [f"{prefix}{topic.name}" for topic in topics]
    doomed = [name for name in names if name in present]
    if doomed:
        _await(client.delete_topics(doomed, operation_timeout=_TIMEOUT_S), KafkaError.UNKNOWN_TOPIC_OR_PART)
        _await_listing(client, bootstrap_servers, lambda names: names.isdisjoint(doomed))


def _client(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


def _partition_counts(client: AdminClient, bootstrap_servers: str) -> dict[str, int]:
    try:
        listed = client.list_topics(timeout=_TIMEOUT_S)
    except KafkaException as error:
        raise StackError(
            f"Kafka does not answer: {error.args[0].str()}",
            where=bootstrap_servers,
            remedy="start it or set ALERTS_KAFKA",
        ) from None
    return {name: len(topic.partitions) for name, topic in listed.topics.items()}


def _await_listing(client: AdminClient, bootstrap_servers: str, arrived: Callable[[set[str]], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not arrived(set(_partition_counts(client, bootstrap_servers))):
        if time.monotonic() > deadline:
            raise StackError("the broker does not show its new list of topics", where=bootstrap_servers)
        time.sleep(0.05)


def _await(futures: dict[str, Future[Any]], harmless_code: int) -> None:
    for name, future in futures.items():
        try:
            future.result(timeout=_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != harmless_code:
                raise StackError(f"topic {name}: {error.args[0].str()}") from None
