"""An exchange's session through the real ccxt: its client, its names, its errors; the server is ours."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import pytest

from contracts.dead_letter import Reason
from feeds.domain.entry import Refusal
from feeds.sources.live import LiveSource
from feeds.sources.plug_ins import SourceOrder, check_source, open_feed_source
from feeds.sources.source import SourceError
from ports.clock import SystemClock
from tests.feeds.played_servers import SESSIONS, answering

DEADLINE_SECONDS = 90.0  # ccxt alone takes seconds to import


def exchange(url: str) -> dict[str, Any]:
    return {
        "kind": "exchange", "exchange": "gemini", "symbols": {"BTC/USD": "BTC-USD", "ETH/USD": "ETH-USD"},
        "interval_ms": 50, "first_rest_seconds": 0.02, "max_rest_seconds": 0.1,
        "options": {
            "urls": {"api": {"public": url}}, "options": {"fetchCurrencies": {"webApiEnable": False}}, "rateLimit": 1,
        },
    }  # fmt: skip


def test_an_exchange_through_a_rate_limit_a_drop_garbage_and_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    session: dict[str, list[dict[str, Any]]] = json.loads((SESSIONS / "gemini.exchange.json").read_text())
    asked: list[str] = []
    lock = threading.Lock()

    def answer(path: str) -> dict[str, Any]:
        with lock:
            asked.append(path)
            lines = session.get(path.split("?", maxsplit=1)[0], [{"status": 404, "raw": "{}"}])
            return lines.pop(0) if len(lines) > 1 else lines[0]

    with answering(answer) as url:
        source = open_feed_source(exchange(url), SourceOrder("f", "source:f", SystemClock()))
        assert isinstance(source, LiveSource)
        entries: list[Any] = []
        try:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while len(entries) < 5 or source.state().caught_up_at_ms is None:
                assert time.monotonic() < deadline, (source.detail(), entries, asked)
                entries += source.poll(10, 0.05)
            detail = source.detail()
        finally:
            source.close()
    bodies = [entry.body for entry in entries]
    assert [b.reason for b in bodies if isinstance(b, Refusal)] == [Reason.UNREADABLE]
    assert [(b["symbol"], b["ts"], b["price"]) for b in bodies if isinstance(b, dict)] == [
        ("BTC-USD", 1_700_000_001_000, "41999.99"),
        ("BTC-USD", 1_700_000_002_500, "42000.10"),
        ("ETH-USD", 1_700_000_001_000, "2200"),
        ("BTC-USD", 1_700_000_004_000, "0.00000001"),
    ]
    assert detail["rate_limited"] == 1
    assert detail["repeats"] >= 1
    assert detail["connection"] >= 3  # aiohttp itself asks again after a drop
    assert any("timestamp=1700000002500" in path for path in asked)  # goes on where it was


def test_without_ccxt_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ccxt", None)
    with pytest.raises(SourceError, match=r"pip install 'rolling-alerts\[exchanges\]'"):
        open_feed_source(exchange("http://127.0.0.1:1"), SourceOrder("f", "source:f", SystemClock()))
    check_source(exchange("http://127.0.0.1:1"))  # settings can be written on a machine without it
