"""One behaviour, two logs: in memory and a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from contracts.keys import partition_of
from ports.kafka import KafkaReader, KafkaWriter
from ports.memory_log import MemoryLog
from ports.message_log import LogReader, LogRecord, LogWriter

PARTITIONS = 3
Log = tuple[str, Callable[[], LogReader], Callable[[], LogWriter]]


@pytest.fixture(params=["memory", "kafka"])
def message_log(request: pytest.FixtureRequest) -> Iterator[Log]:
    """(topic, reader maker, writer maker)."""
    topic = f"log-{uuid4().hex}"
    if request.param == "memory":
        memory = MemoryLog({topic: PARTITIONS})
        yield topic, memory.reader, memory.writer
        return
    bootstrap = request.getfixturevalue("kafka")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    yield topic, lambda: KafkaReader(bootstrap, "test"), lambda: KafkaWriter(bootstrap, "test")
    admin.delete_topics([topic])[topic].result(30)


def read_all(reader: LogReader, count: int) -> list[LogRecord]:
    """Polls until `count` records have come; a broker that lost one fails the test after a bounded number of polls."""
    found: list[LogRecord] = []
    for _ in range(300):
        if len(found) >= count:
            break
        found += reader.poll(7, 0.1)
    return found


def test_order_per_key_positions_and_timestamps(message_log: Log) -> None:
    topic, make_reader, make_writer = message_log
    writer, reader = make_writer(), make_reader()
    keys = [b"a", b"b", b"c", b"d"]
    for n in range(40):
        writer.append(topic, keys[n % 4], str(n).encode(), 1_000 + n)
    writer.flush()
    assert reader.partitions(topic) == PARTITIONS
    assert reader.begin_offsets(topic) == dict.fromkeys(range(PARTITIONS), 0)
    assert sum(reader.end_offsets(topic).values()) == 40
    reader.assign({(topic, p): 0 for p in range(PARTITIONS)})
    found = read_all(reader, 40)
    assert len(found) == 40
    for n, key in enumerate(keys):
        mine = [record for record in found if record.key == key]
        assert [record.value for record in mine] == [str(m).encode() for m in range(n, 40, 4)]
        assert {record.partition for record in mine} == {partition_of(key, PARTITIONS)}
        assert [record.timestamp_ms for record in mine] == [1_000 + m for m in range(n, 40, 4)]
    for partition in range(PARTITIONS):
        offsets = [record.offset for record in found if record.partition == partition]
        assert offsets == list(range(len(offsets)))
    writer.close()
    reader.close()


def test_reading_goes_on_where_it_is_assigned(message_log: Log) -> None:
    topic, make_reader, make_writer = message_log
    writer, reader = make_writer(), make_reader()
    partition = partition_of(b"a", PARTITIONS)
    for n in range(10):
        writer.append(topic, b"a", str(n).encode(), n)
    writer.flush()
    for _ in range(2):  # assigning again reads again
        reader.assign({(topic, partition): 6})
        assert [record.value for record in read_all(reader, 4)] == [b"6", b"7", b"8", b"9"]
    assert list(reader.poll(10, 0.05)) == []
    writer.append(topic, b"a", b"10", 10)
    writer.flush()
    assert [record.value for record in read_all(reader, 1)] == [b"10"]
    writer.close()
    reader.close()
