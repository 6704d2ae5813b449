"""Recorded sessions of network sources: drops, replays, rate limits, garbage; what the feed's clock sees of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.dead_letter import Reason
from feeds.domain.entry import Refusal, SourceEntry
from feeds.domain.feed_clock import SourceState
from feeds.domain.feed_settings import feed_settings
from feeds.domain.gateway_core import GatewayCore
from feeds.domain.recovered import RecoveredFeed
from feeds.sources.http_polling import retry_after_seconds
from feeds.sources.live import LiveSettings, LiveSource, RateLimitedError, Session
from feeds.sources.plug_ins import SourceOrder, open_feed_source, session_position
from feeds.sources.tick_layout import TickLayout, read_message
from ports.clock import SystemClock
from tests.feeds.played_servers import playing_http, playing_websocket, read_session

DEADLINE_SECONDS = 30.0
Open = Callable[..., LiveSource]
LAYOUT = {"items": "data", "symbol": "s", "price": "p", "ts": "t", "ts_unit": "s"}
TRADES = {"symbol": "s", "price": "p", "ts": "t", "id": "id", "match": {"type": "trade"}}


@pytest.fixture
def open_live(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens sources with short rests; closes them."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    opened: list[LiveSource] = []

    def open_one(
        stored: Mapping[str, Any], *, frontier_ms: int = 0, secrets: Mapping[str, str] | None = None
    ) -> LiveSource:
        order = SourceOrder("f", "source:f", SystemClock(), session_position(7), frontier_ms, secrets or {})
        source = open_feed_source({"first_rest_seconds": 0.02, "max_rest_seconds": 0.1, **stored}, order)
        assert isinstance(source, LiveSource)
        opened.append(source)
        return source

    yield open_one
    for source in opened:
        source.close()


class Watched:
    """A source, and everything that it said in the order in which a gateway would see it."""

    def __init__(self, source: LiveSource) -> None:
        self.source = source
        self.entries: list[SourceEntry] = []
        self.states: list[tuple[int, SourceState]] = []  # how many entries had come by then

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not done():
            assert time.monotonic() < deadline, (self.source.detail(), self.entries)
            self.entries += self.source.poll(3, 0.02)
            if not self.states or self.states[-1][1] != self.source.state():
                self.states.append((len(self.entries), self.source.state()))

    def bodies(self) -> list[Any]:
        return [entry.body for entry in self.entries]

    def ticks(self) -> list[tuple[Any, ...]]:
        return [(b["symbol"], b["ts"], b["price"]) for b in self.bodies() if isinstance(b, dict)]

    def reasons(self) -> list[Reason]:
        return [b.reason for b in self.bodies() if isinstance(b, Refusal)]

    def proofs(self) -> dict[int, int]:
        """Connection -> entries that had come at its first proof."""
        found: dict[int, int] = {}
        for count, state in self.states:
            if state.caught_up_at_ms is not None:
                found.setdefault(state.connection, count)
        return found


def test_http_polling_through_repeats_a_rate_limit_a_drop_and_garbage(open_live: Open) -> None:
    lines = read_session("quotes.http.jsonl")
    with playing_http(lines) as url:
        stored = {
            "kind": "http",
            "url": url,
            "interval_ms": 50,
            "layout": LAYOUT,
            "symbols": {"aapl": "AAPL", "msft": "MSFT"},
        }
        began = time.monotonic()
        watched = Watched(open_live(stored))
        watched.until(lambda: ("AAPL", 1_700_000_012_000, "187.3") in watched.ticks())
        assert time.monotonic() - began >= 1.0  # what Retry-After asked for
        assert watched.ticks() == [
            ("AAPL", 1_700_000_000_000, "187.25"),
            ("MSFT", 1_700_000_000_000, "370.1"),
            ("MSFT", 1_700_000_001_500, "370.2"),
            ("MSFT", 1_700_000_009_000, "371"),
            ("AAPL", 1_700_000_012_000, "187.3"),
        ]
        assert watched.reasons() == [Reason.UNREADABLE] * 2
        watched.until(lambda: watched.source.state().caught_up_at_ms is not None)
        detail = watched.source.detail()
        assert (detail["rate_limited"], detail["unreadable"], detail["fault"]) == (1, 2, None)
        assert detail["repeats"] >= 2
        assert [entry.position for entry in watched.entries] == [session_position(7) + n for n in range(7)]
        # each fault ended a connection; none of the faulty ones was ever proven
        assert set(watched.proofs()) == {1, 5}
        assert watched.source.positions() == {"source:f": session_position(7) + 7}


def test_http_asks_for_what_is_new_and_again_at_once_while_pages_are_full(open_live: Open) -> None:
    def page(*times: int) -> dict[str, Any]:
        return {"status": 200, "body": [{"symbol": "A", "ts": t, "price": "1", "id": t} for t in times]}

    asked: list[str] = []
    with playing_http([page(1_000_000, 1_020_000), page(1_030_000, 1_040_000), page(1_040_000)], asked) as url:
        layout = {"id": "id"}
        stored = {"kind": "http", "url": url, "params": {"since": "{since_ms}"}, "interval_ms": 60_000, "full_page": 2}
        watched = Watched(open_live({**stored, "layout": layout}, frontier_ms=900_000))
        watched.until(lambda: watched.source.state().caught_up_at_ms is not None)
        assert [b["ts"] for b in watched.bodies()] == [1_000_000, 1_020_000, 1_030_000, 1_040_000]
        assert asked == ["/?since=900000", "/?since=1010000", "/?since=1030000"]
        assert watched.proofs() == {1: 4}


def test_websocket_through_a_rate_limit_a_drop_a_replay_and_garbage(open_live: Open) -> None:
    told: list[str] = []
    with playing_websocket(read_session("trades.websocket.jsonl"), told) as url:
        stored = {
            "kind": "websocket", "url": url,
            "subscribe": [{"subscribe": "trades", "key": "${WS_WORD}", "from": "{since_ms}"}],
            "ping_interval_ms": 50, "layout": TRADES, "symbols": {"BTC-USD": "BTC"},
        }  # fmt: skip
        began = time.monotonic()
        watched = Watched(open_live(stored, secrets={"WS_WORD": "hush"}))
        watched.until(lambda: ("BTC", 1_700_000_003_000, "42001") in watched.ticks())
        watched.until(lambda: watched.source.state().caught_up_at_ms is not None)
        assert time.monotonic() - began >= 1.0
        assert watched.ticks() == [
            ("BTC", 1_700_000_000_000, "42000.10"),
            ("BTC", 1_700_000_000_000, "42000.10"),
            ("ETH-USD", 1_700_000_000_500, "2200"),
            ("BTC", 1_700_000_002_000, "41999.5"),
            ("BTC", 1_700_000_003_000, "42001"),
        ]
        assert watched.reasons() == [Reason.UNREADABLE] * 2
        detail = watched.source.detail()
        assert (detail["repeats"], detail["rate_limited"], detail["fault"]) == (2, 1, None)
        assert [message.replace(" ", "") for message in told] == [
            '{"subscribe":"trades","key":"hush","from":"0"}',
            '{"subscribe":"trades","key":"hush","from":"1699999990500"}',
        ]
        assert "hush" not in str(detail)


def test_a_websocket_is_proven_only_behind_everything_that_was_sent_before_the_pong(open_live: Open) -> None:
    count = 5_000
    lines = [{"send": {"type": "trade", "id": n, "s": "A", "p": "1", "t": 1_700_000_000_000 + n}} for n in range(count)]
    sent_at_ms: list[int] = []
    with playing_websocket(lines, sent_at_ms=sent_at_ms) as url:
        stored = {"kind": "websocket", "url": url, "subscribe": ["hello"], "ping_interval_ms": 50, "layout": TRADES}
        watched = Watched(open_live(stored))
        watched.until(lambda: len(watched.entries) == count)
        seen = len(watched.states)
        watched.until(lambda: len(watched.states) > seen + 1)
        proofs = [(n, state.caught_up_at_ms) for n, state in watched.states if state.caught_up_at_ms is not None]
        assert len(proofs) > 1
        for entries, proven_ms in proofs:
            assert entries >= sum(sent_ms < proven_ms for sent_ms in sent_at_ms)
        assert [b["ts"] for b in watched.bodies()] == [1_700_000_000_000 + n for n in range(count)]


def test_a_replay_is_over_when_the_source_says_so_not_at_the_first_pong(open_live: Open) -> None:
    lines: list[dict[str, Any]] = [{"send": {"type": "trade", "id": 1, "s": "A", "p": "1", "t": 1_700_000_000_000}}]
    with playing_websocket(lines) as url:
        stored = {
            "kind": "websocket", "url": url, "subscribe": ["hello"], "ping_interval_ms": 50, "layout": TRADES,
            "ready": {"type": "replayed"},
        }  # fmt: skip
        watched = Watched(open_live(stored))
        watched.until(lambda: len(watched.entries) == 1)
        quiet_until = time.monotonic() + 0.5  # ten pings
        watched.until(lambda: time.monotonic() > quiet_until)
        assert watched.proofs() == {}


def test_a_source_whose_clock_is_wrong_is_counted_refused_or_not_believed(open_live: Open) -> None:
    now_ms = time.time_ns() // 1_000_000
    body = [
        {"symbol": "AHEAD", "ts": now_ms + 3_600_000, "price": "1"},
        {"symbol": "BEHIND", "ts": now_ms - 3_600_000, "price": "2"},
        {"symbol": "RIGHT", "ts": now_ms - 1_000, "price": "3"},
    ]
    later = [{**tick, "ts": tick["ts"] + 1} for tick in body]
    with playing_http([{"status": 200, "body": body}, {"status": 200, "body": later}]) as url:
        stored = {"kind": "http", "url": url, "interval_ms": 50}
        believed = Watched(open_live({**stored, "max_behind_ms": 60_000}))
        believed.until(lambda: len(believed.entries) >= 6)
        detail = believed.source.detail()
        # until it has caught up once, old ticks are its history
        assert [b.reason if isinstance(b, Refusal) else b["symbol"] for b in believed.bodies()] == [
            "AHEAD", "BEHIND", "RIGHT", "AHEAD", Reason.BEHIND_CLOCK, "RIGHT",
        ]  # fmt: skip
        assert (detail["ahead"], detail["behind"]) == (2, 1)
    with playing_http([{"status": 200, "body": body}]) as url:
        stamped = Watched(open_live({"kind": "http", "url": url, "interval_ms": 50, "clock": "received"}))
        stamped.until(lambda: stamped.source.detail()["repeats"] >= 3)
        assert len(stamped.ticks()) == 3
        assert all(abs(b["ts"] - now_ms) < 60_000 for b in stamped.bodies())


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0.0), ("7", 7.0), (" 120 ", 120.0), ("Thu, 01 Jan 1970 00:01:00 GMT", 50.0), ("soon", 0.0), ("-5", 0.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0), ("9" * 400, 999_999_999.0),
    ],
)  # fmt: skip
def test_retry_after_in_seconds_or_as_a_date(value: str | None, seconds: float) -> None:
    assert retry_after_seconds(value, 10_000) == seconds
    assert RateLimitedError(seconds).rest_seconds <= 3_600


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["s", "p", "t", "id", "d"]), inner),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    message=JSON | st.dictionaries(st.sampled_from(["s", "p", "t", "id"]), JSON),
    raw=st.none()
    | st.binary(max_size=20)
    | st.sampled_from([b'{"s":"\\ud800","p":"1","t":1}', b"[" * 100_000, b"1" * 5_000]),
    unit=st.sampled_from(["ms", "s", "us", "ns", "iso"]),
)
def test_nothing_that_a_source_may_say_raises_and_the_gateway_can_take_all_of_it(
    clock: Any, message: Any, raw: bytes | None, unit: Any
) -> None:
    text = json.dumps(message).encode() if raw is None else raw
    layout = TickLayout(symbol="s", price="p", ts="t", ts_unit=unit, id="id")
    read = read_message(text)
    found = [read] if isinstance(read, Refusal) else list(layout.ticks(read))
    source = LiveSource(Silent(), LiveSettings(), SourceOrder("f", "source:f", clock))
    try:
        for tick in found:
            asyncio.run(source.take(tick, text, False))
        entries = source.poll(1_000, 0.0)
    finally:
        source.close()
    core = GatewayCore(feed_settings("f", 2, "live", {}), 1, {"A": 2}, RecoveredFeed(), wall_ms=0, monotonic_ms=0)
    for entry in entries:
        core.accept(entry, 0)
    for letter in core.take_dead_letters():
        letter.model_dump_json()


class Silent:
    """A connector whose far end says nothing."""

    async def run(self, session: Session) -> None:
        await asyncio.Event().wait()


def test_a_queue_that_nobody_empties_stops_the_reading_and_loses_nothing(
    open_live: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feeds.sources.live.MAX_QUEUED", 10)
    body = [{"symbol": "A", "ts": 1_700_000_000_000 + n, "price": "1"} for n in range(500)]
    with playing_http([{"status": 200, "body": body}]) as url:
        watched = Watched(open_live({"kind": "http", "url": url, "interval_ms": 50}))
        most = 0

        def done() -> bool:
            nonlocal most
            most = max(most, watched.source.detail()["queued"])
            return len(watched.entries) == 500

        watched.until(done)
        assert most <= 12
        assert [b["ts"] for b in watched.bodies()] == [tick["ts"] for tick in body]
