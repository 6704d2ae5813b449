"""What a reader does while brokers are away or quiet: librdkafka's own mock cluster plays them, over real sockets."""

from __future__ import annotations

import gc
import os
import socket
import time

import psutil
import pytest
from confluent_kafka import Producer

from ports.kafka import KafkaReader, KafkaWriter
from ports.message_log import LogError

DEAD_BROKER = "127.0.0.1:1"
PATIENCE_SECONDS = 30.0


class MockBroker:
    """One broker in this process; `end` closes its sockets."""

    def __init__(self) -> None:
        self._client: Producer | None = Producer({"bootstrap.servers": DEAD_BROKER, "test.mock.num.brokers": 1})
        (broker,) = self._client.list_topics(timeout=10).brokers.values()
        self.bootstrap = f"{broker.host}:{broker.port}"

    def break_connections(self) -> None:
        port = int(self.bootstrap.rpartition(":")[2])
        for connection in psutil.Process().net_connections("tcp"):
            if connection.raddr and connection.raddr.port == port:
                with socket.socket(fileno=os.dup(connection.fd)) as broken:
                    broken.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self._client = None
        gc.collect()


def write(broker: MockBroker, value: bytes) -> None:
    writer = KafkaWriter(broker.bootstrap, "test", log_level=0)
    writer.append("t", b"k", value, 1)
    writer.flush()
    writer.close()


def poll_until(reader: KafkaReader, until: float) -> None:
    while time.monotonic() < until:
        reader.poll(10, 0.1)


def test_a_reader_whose_brokers_stay_away_fails_instead_of_reading_nothing_for_ever() -> None:
    broker = MockBroker()
    write(broker, b"v")
    reader = KafkaReader(broker.bootstrap, "test", unreachable_limit_seconds=0.5)
    reader.assign({("t", p): 0 for p in range(reader.partitions("t"))})
    until = time.monotonic() + PATIENCE_SECONDS
    while not reader.poll(10, 0.1):
        assert time.monotonic() < until
    broker.end()
    with pytest.raises(LogError, match=r"t\[\d\]: no broker has answered for \d+ s"):
        poll_until(reader, until)
    reader.close()


def test_errors_that_are_over_are_no_outage() -> None:
    """The connections break once; nothing is written since, so no record shows that the broker is back."""
    broker = MockBroker()
    write(broker, b"v")
    reader = KafkaReader(broker.bootstrap, "test", unreachable_limit_seconds=0.3)
    reader.assign({("t", p): 0 for p in range(reader.partitions("t"))})
    until = time.monotonic() + PATIENCE_SECONDS
    while not reader.poll(10, 0.1):
        assert time.monotonic() < until
    broker.break_connections()
    heard = []
    while len(set(heard)) < 2 or heard[-1]:  # an error was heard, and has been found to be over
        assert reader.poll(10, 0.1) == []
        heard.append(reader.is_failing)
        assert time.monotonic() < until
    write(broker, b"w")
    while not (records := reader.poll(10, 0.1)):
        assert time.monotonic() < until
    assert [record.value for record in records] == [b"w"]
    reader.close()
    broker.end()


def test_a_reader_that_gathers_returns_soon_after_its_first_record() -> None:
    broker = MockBroker()
    write(broker, b"v")
    reader = KafkaReader(broker.bootstrap, "test", gather_seconds=0.01)
    reader.assign({("t", p): 0 for p in range(reader.partitions("t"))})
    before = time.monotonic()
    assert [record.value for record in reader.poll(500, PATIENCE_SECONDS)] == [b"v"]
    write(broker, b"w")
    assert [record.value for record in reader.poll(1, PATIENCE_SECONDS)] == [b"w"]
    assert time.monotonic() - before < PATIENCE_SECONDS / 2
    assert reader.poll(500, 0.05) == []
    reader.close()
    broker.end()
