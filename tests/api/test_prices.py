"""Prices that are posted, and the latest ones that are shown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest

from api.admin.ticks import MAX_TICKS, TickProducer
from api.settings import MAX_BODY_BYTES, ApiSettings
from feeds.archive.latest_prices import LatestPrice
from feeds.ports import StoreAwayError
from ports.memory_log import MemoryLog, MemoryWriter
from ports.message_log import LogError
from sql.latest_price_store import open_latest_price_store
from tests.api.settable_clock import SettableClock

Headers = dict[str, str]
NOON_MS = 1_772_366_400_000


def messages(log: MemoryLog, after: int) -> list[dict[str, Any]]:
    return [orjson.loads(record.value) for record in log.records("ticks.v1")[after:]]


def test_good_ticks_are_taken_beside_bad_ones_and_each_bad_one_is_told(
    api: httpx.Client, admin: Headers, tick_log: MemoryLog
) -> None:
    before = len(tick_log.records("ticks.v1"))
    good = {"symbol": "aapl", "ts": "2026-03-01T12:00:00Z", "price": "187.23"}
    ticks: list[Any] = [
        good,
        {**good, "price": 187.23},
        {**good, "price": "187.234"},
        {**good, "symbol": "NOPE"},
        {**good, "symbol": "\x00"},
        {**good, "ts": "noon"},
        {**good, "ts": -1},
        {**good, "seq": 0},
        {**good, "session": True},
        "AAPL",
        {"symbol": "BTC", "ts": NOON_MS, "price": "70000.12345678", "seq": 7, "session": 2, "more": "is not passed on"},
    ]
    answer = api.post("/v1/admin/ticks", json={"ticks": ticks}, headers=admin)
    assert answer.status_code == 200
    body = answer.json()
    assert (body["accepted"], body["rejected"]) == (2, 9)
    assert [(error["row"], error["reason"]) for error in body["errors"]] == [
        (1, "not_plain_decimal"), (2, "too_many_decimals"), (3, "unknown_symbol"), (4, "bad_symbol"), (5, "bad_time"),
        (6, "bad_time"), (7, "bad_sequence"), (8, "bad_session"), (9, "not_an_object"),
    ]  # fmt: skip
    assert messages(tick_log, before) == [
        {"feed": "stocks", "symbol": "AAPL", "ts": NOON_MS, "price": "187.23"},
        {"feed": "coins", "symbol": "BTC", "ts": NOON_MS, "price": "70000.12345678", "seq": 7, "session": 2},
    ]
    other = api.post("/v1/admin/ticks", json={"feed": "coins", "ticks": [good]}, headers=admin).json()
    assert other["errors"] == [{"row": 0, "reason": "unknown_symbol", "detail": "AAPL is no instrument of coins"}]


@pytest.mark.parametrize(
    "body", [{}, {"ticks": []}, {"ticks": [{}] * (MAX_TICKS + 1)}, {"ticks": {}}, {"feed": "A!", "ticks": [1]}]
)
def test_a_body_that_is_none_is_a_problem(api: httpx.Client, admin: Headers, body: Any) -> None:
    assert api.post("/v1/admin/ticks", json=body, headers=admin).status_code == 422


def test_only_an_admin_posts_prices_and_never_too_many_bytes(api: httpx.Client, admin: Headers, ada: Headers) -> None:
    body = {"ticks": [{"symbol": "AAPL", "ts": NOON_MS, "price": "1"}]}
    assert api.post("/v1/admin/ticks", json=body).status_code == 401
    assert api.post("/v1/admin/ticks", json=body, headers=ada).status_code == 403
    big = {"ticks": ["x" * MAX_BODY_BYTES]}
    assert api.post("/v1/admin/ticks", json=big, headers=admin).status_code == 413


def test_after_a_failure_the_next_request_opens_the_log_anew(clock: SettableClock) -> None:
    log = MemoryLog({"ticks.v1": 1})
    opened: list[Any] = []

    class Failing(MemoryWriter):
        def flush(self) -> None:
            raise LogError("away")

    def open_log() -> MemoryWriter:
        opened.append(Failing(log) if not opened else MemoryWriter(log))
        return opened[-1]  # type: ignore[no-any-return]

    producer = TickProducer(open_log, "ticks.v1", clock)
    with pytest.raises(LogError):
        producer.send([{"symbol": "A"}])
    threads = [threading.Thread(target=producer.send, args=([{"symbol": "A"}] * 10,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 2
    assert len(log.records("ticks.v1")) == 40
    producer.close()


def test_latest_prices_are_shown_and_only_newer_ones_replace(
    api: httpx.Client, ada: Headers, settings: ApiSettings, sql: Callable[..., list[Any]]
) -> None:
    store = open_latest_price_store(settings.postgres_dsn, settings.postgres_schema)
    store.write([LatestPrice("AAPL", NOON_MS, 18_723, 5), LatestPrice("BTC", NOON_MS, 7_000_012_345_678, 5)])
    store.write([LatestPrice("AAPL", NOON_MS - 1, 1, 9), LatestPrice("GONE", NOON_MS, 1, 1)])
    store.write([LatestPrice("AAPL", NOON_MS, 2, 4)])
    shown = api.get("/v1/instruments/aapl", headers=ada).json()
    assert shown == {
        "symbol": "AAPL", "feed": "stocks", "decimals": 2,
        "latest": {"price": "187.23", "time": "2026-03-01T12:00:00.000Z"},
    }  # fmt: skip
    store.write([LatestPrice("AAPL", NOON_MS, 18_724, 6)])
    listed = {row["symbol"]: row["latest"] for row in api.get("/v1/instruments", headers=ada).json()["instruments"]}
    assert listed["AAPL"]["price"] == "187.24"
    assert listed["BTC"]["price"] == "70000.12345678"
    assert listed["VOD.L"] is None
    assert api.get("/v1/instruments/BRK-B", headers=ada).json()["symbol"] == "BRK.B"
    for nothing in ("NOPE", "%00", "a%20b", "x" * 100):
        assert api.get(f"/v1/instruments/{nothing}", headers=ada).status_code == 404
    assert api.get("/v1/instruments/AAPL").status_code == 401
    store.close()


def test_a_database_that_is_away_is_told_as_such() -> None:
    store = open_latest_price_store("postgresql://127.0.0.1:1/none?connect_timeout=1", "alerts")
    store._pool.timeout = 0.2  # the test needs no patience
    try:
        with pytest.raises(StoreAwayError):
            store.write([LatestPrice("A", 1, 1, 1)])
    finally:
        store.close()
