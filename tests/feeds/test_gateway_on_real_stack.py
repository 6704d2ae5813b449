"""The gateway as its process opens it, on a real broker and database: ticks, a control at run time, a second start."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from contracts.topics import ALL_TOPICS, PRICES, TICKS
from feeds.__main__ import open_gateway
from feeds.gateway import FeedGateway
from feeds.settings import GatewaySettings
from feeds.sources.plug_ins import check_source
from ports.clock import SystemClock
from ports.kafka import KafkaReader, KafkaWriter
from sql.connection import Pool
from sql.reference_store import ReferenceStore
from stack.topics import drop_topics, ensure_topics
from tests.feeds.played_servers import answering

DEADLINE_SECONDS = 60
PREFIX = "feeds-real."


def run_until(gateway: FeedGateway, done: Any) -> None:
    """Steps until `done()`; each step waits for the broker, never for a guess."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not done():
        assert time.monotonic() < deadline, gateway.detail()
        gateway.step()


def read_prices(kafka: str) -> list[bytes]:
    reader, topic = KafkaReader(kafka, "test"), PRICES.named(PREFIX)
    ends = reader.end_offsets(topic)
    left = sum(ends.values())
    reader.assign({(topic, partition): 0 for partition in ends})
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(values) < left:
        assert time.monotonic() < deadline
        values += [record.value for record in reader.poll(1_000, 0.1)]
    reader.close()
    return values


def test_the_gateway_on_a_real_broker_and_database(
    kafka: str, postgres_server: str, postgres_schema: str, pool: Pool, read_frames: Any
) -> None:
    ensure_topics(kafka, PREFIX, ALL_TOPICS)
    try:
        reference = ReferenceStore(pool)
        reference.create_feed("real", 4, "replay")
        reference.add_instrument("AAA", "real", 2)
        settings = GatewaySettings(
            kafka=kafka, postgres_dsn=postgres_server, postgres_schema=postgres_schema, topic_prefix=PREFIX
        )
        writer = KafkaWriter(kafka, "test")

        def send(symbol: str, first: int, count: int) -> None:
            for n in range(first, first + count):
                body = {"symbol": symbol, "ts": 1_767_607_200_000 + n, "price": f"{n}.5", "seq": n}
                writer.append(TICKS.named(PREFIX), symbol.encode(), orjson.dumps(body), 1)
            writer.flush()

        def accepted(gateway: FeedGateway) -> int:
            found: int = gateway.detail()["feeds"]["real"]["accepted"]
            return found

        send("AAA", 1, 3_000)
        first = open_gateway(settings, SystemClock())
        run_until(first, lambda: accepted(first) == 3_000)
        reference.add_instrument("BBB", "real", 1)
        run_until(first, lambda: not first._store.feeds_with_controls(["real"]))
        first.close()
        send("BBB", 1, 10)
        second = open_gateway(settings, SystemClock())
        send("AAA", 3_001, 10)
        wanted = [("AAA", n) for n in range(1, 3_011)] + [("BBB", n) for n in range(1, 11)]

        def ticks() -> list[tuple[str, int]]:
            buckets, rejected = read_frames(read_prices(kafka), "real")
            assert rejected == 0
            return [(e[1], e[4]) for entries in buckets.values() for e in entries if e[0] == "tick"]

        run_until(second, lambda: sum(second.detail()["source"].values()) == 3_020)
        run_until(second, lambda: not second.step())
        run_until(second, lambda: len(ticks()) >= len(wanted))
        assert sorted(ticks()) == wanted
        assert [symbol_sequence for symbol_sequence in ticks() if symbol_sequence[0] == "AAA"] == wanted[:3_010]
        second.close()
        writer.close()
    finally:
        drop_topics(kafka, PREFIX, ALL_TOPICS)


def test_a_feed_fetches_its_own_prices_and_goes_on_after_a_restart(
    kafka: str,
    postgres_server: str,
    postgres_schema: str,
    pool: Pool,
    read_frames: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ALERTS_SOURCE_TOKEN", "hush")
    ensure_topics(kafka, PREFIX, ALL_TOPICS)
    asked: list[str] = []

    def answer(path: str) -> dict[str, Any]:
        asked.append(path)
        ts = time.time_ns() // 1_000_000
        return {
            "status": 200,
            "body": [{"symbol": "AAA", "ts": ts, "price": f"{len(asked)}.5"}, {"symbol": "?", "price": 1}],
        }

    try:
        with answering(answer) as url:
            reference = ReferenceStore(pool)
            reference.create_feed("web", 2, "live")
            reference.add_instrument("AAA", "web", 2)
            source = {"kind": "http", "url": url, "params": {"token": "${TOKEN}"}, "interval_ms": 50}
            check_source(source)
            reference.set_source("web", source)
            settings = GatewaySettings(
                kafka=kafka, postgres_dsn=postgres_server, postgres_schema=postgres_schema, topic_prefix=PREFIX
            )
            for lease in (1, 2):
                gateway = open_gateway(settings, SystemClock())
                run_until(gateway, lambda: gateway.detail()["feeds"]["web"]["accepted"] >= 5)  # noqa: B023
                run_until(gateway, lambda: gateway.detail()["frames"] >= 2)  # noqa: B023
                told = gateway.detail()["own_sources"]["web"]
                assert told["fault"] is None
                assert gateway.detail()["feeds"]["web"]["lease"] == lease
                gateway.close()
        ticks = [e for entries in read_frames(read_prices(kafka), "web")[0].values() for e in entries if e[0] == "tick"]
        assert {session for *_, session in ticks} == {1, 2}
        assert [e[2] for e in ticks] == sorted({e[2] for e in ticks})  # none twice, none out of order
        assert set(asked) == {"/?token=hush"}
    finally:
        drop_topics(kafka, PREFIX, ALL_TOPICS)
