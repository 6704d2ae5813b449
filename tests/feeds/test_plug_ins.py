"""Which sources a feed may have, what of them may be stored, and files as a feed's own source."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel

from feeds.domain.entry import SourceEntry
from feeds.sources.plug_ins import SourceOrder, check_source, known_kinds, open_feed_source
from feeds.sources.secret_references import resolve, source_secrets
from feeds.sources.source import Source, SourceError
from feeds.sources.tick_layout import KEY, FoundTick, TickLayout, read_message


class Drummer:
    """Somebody's own source."""

    class settings(BaseModel):
        symbol: str

    @staticmethod
    def open(settings: Any, order: SourceOrder) -> Any:
        return (settings.symbol, order.feed)


def order(clock: Any, **more: Any) -> SourceOrder:
    return SourceOrder("f", "source:f", clock, **more)


def drain(source: Source, size: int = 3) -> list[SourceEntry]:
    found: list[SourceEntry] = []
    while entries := source.poll(size, 0.0):
        found += entries
    return found


def test_another_package_adds_a_kind_by_its_entry_point(monkeypatch: pytest.MonkeyPatch, clock: Any) -> None:
    points = [
        EntryPoint("drum", f"{__name__}:Drummer", "rolling_alerts.sources"),
        EntryPoint("broken", "no_such_package:Kind", "rolling_alerts.sources"),
    ]

    def find(group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == "rolling_alerts.sources"
        return [point for point in points if name in (None, point.name)]

    monkeypatch.setattr("feeds.sources.plug_ins.entry_points", find)
    monkeypatch.setattr(
        EntryPoint, "load", lambda self: Drummer if self.name == "drum" else __import__("no_such_package")
    )
    assert {"drum", "csv", "parquet", "http", "websocket", "exchange"} <= set(known_kinds())
    opened: Any = open_feed_source({"kind": "drum", "symbol": "A"}, order(clock))
    assert opened == ("A", "f")
    with pytest.raises(SourceError, match=r"source\.symbol: Field required"):
        check_source({"kind": "drum"})
    with pytest.raises(SourceError, match=r"broken.*can't be loaded"):
        check_source({"kind": "broken"})


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (None, 'give an object with a "kind"'),
        ({"kind": "pigeon"}, "there is none; known are csv"),
        ({"kind": "http"}, r"source\.url: Field required"),
        ({"kind": "http", "url": "http://h", "surprise": 1}, r"source\.surprise: Extra inputs"),
        ({"kind": "http", "url": "http://h", "headers": {"Authorization": "Bearer xyzzy"}}, "ALERTS_SOURCE_NAME"),
        ({"kind": "http", "url": "http://h/?token=xyzzy"}, "ALERTS_SOURCE_NAME"),
        ({"kind": "http", "url": "http://me:xyzzy@h/"}, "password in it"),
        ({"kind": "websocket", "url": "ws://h", "subscribe": [{"api_key": "xyzzy"}]}, "ALERTS_SOURCE_NAME"),
        ({"kind": "exchange", "exchange": "x1", "symbols": {"A": "B"}, "options": {"secret": "xyzzy"}}, "secrets"),
    ],
)  # fmt: skip
def test_settings_that_are_wrong_or_hold_a_secret_are_refused_without_showing_it(stored: Any, said: str) -> None:
    with pytest.raises(SourceError, match=said) as refused:
        check_source(stored)
    assert "xyzzy" not in str(refused.value)


def test_references_are_resolved_from_the_gateways_own_variables_alone(clock: Any) -> None:
    secrets = source_secrets({"ALERTS_SOURCE_KEY": "k", "HOME": "/root", "ALERTS_SECRET_KEY": "never"})
    assert resolve({"a": ["Bearer ${KEY}", 1], "b": "$HOME"}, secrets) == {"a": ["Bearer k", 1], "b": "$HOME"}
    with pytest.raises(SourceError, match="set the variable ALERTS_SOURCE_HOME"):
        open_feed_source({"kind": "http", "url": "http://h", "params": {"x": "${HOME}"}}, order(clock, secrets=secrets))


def test_prices_keep_every_digit_of_a_strangers_json() -> None:
    raw = (
        '{"r":{"XBT":{"c":[42000.123456789012345,1]},"ETH":{"c":["2200.10"]},"DOGE":{"c":[1.25e-05]},"N":{"c":[7]},'
        '"BAD":{"c":[]},"B":{"c":[true]},"HUGE":{"c":[1e999999999]}}}'
    )
    found = list(TickLayout(items="r", symbol=KEY, price="c.0", ts=None).ticks(read_message(raw)))
    prices = {tick.body["symbol"]: tick.body["price"] for tick in found if isinstance(tick, FoundTick)}
    assert prices == {
        "XBT": "42000.123456789012345", "ETH": "2200.10", "DOGE": "0.0000125", "N": "7",
        "B": "True", "HUGE": "1e999999999",
    }  # fmt: skip
    assert len(found) == 7


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("s", "1700000000", 1_700_000_000_000), ("s", 1_700_000_000, 1_700_000_000_000),
        ("us", 1_700_000_000_000_999, 1_700_000_000_000),
        ("ns", 1_700_000_000_000_999_999, 1_700_000_000_000), ("ms", "x", "x"), ("s", True, True), ("s", "nan", "nan"),
        ("iso", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"), ("s", "1e400", "1e400"), ("ms", None, None),
    ],
)  # fmt: skip
def test_times_in_every_unit_and_what_is_none_is_left_to_the_gateway(unit: Any, value: Any, expected: Any) -> None:
    [tick] = TickLayout(ts_unit=unit).ticks({"symbol": "A", "price": "1", "ts": value})
    assert isinstance(tick, FoundTick)
    assert tick.body["ts"] == expected


def test_parquet_columns_of_every_kind_and_positions_that_can_be_gone_back_to(tmp_path: Path, clock: Any) -> None:
    moment = datetime(2026, 1, 5, 10, tzinfo=UTC)
    first = pa.table({
        "t": pa.array([moment, None, moment], pa.timestamp("us", "UTC")),
        "p": pa.array([Decimal("1.50"), Decimal("2.00"), Decimal("0.01")], pa.decimal128(18, 2)),
        "s": pa.array(["A", "B", None]).dictionary_encode(),
        "n": pa.array([1, None, 3]),
    })  # fmt: skip
    pq.write_table(first, tmp_path / "1.parquet", row_group_size=2)
    pq.write_table(first.slice(0, 2), tmp_path / "2.parquet")
    stored = {
        "kind": "parquet",
        "path": str(tmp_path),
        "ts": "t",
        "price": "p",
        "symbol": "s",
        "seq": "n",
        "flush_at_end": True,
    }
    source = open_feed_source(stored, order(clock))
    entries = drain(source)
    assert [entry.position for entry in entries] == list(range(6))
    at_ms = int(moment.timestamp() * 1000)
    assert [entry.body for entry in entries[:3]] == [
        {"ts": at_ms, "price": "1.50", "symbol": "A", "seq": 1},
        {"ts": None, "price": "2.00", "symbol": "B", "seq": None},
        {"ts": at_ms, "price": "0.01", "symbol": None, "seq": 3},
    ]
    assert entries[-1].body == {"type": "flush"}
    assert source.state().caught_up_at_ms == clock.monotonic_ms()
    for position in range(7):
        source.seek({"source:f": position})
        assert drain(source) == entries[position:]
    source.close()


def test_parquet_floats_and_naive_times_only_when_asked_for(tmp_path: Path, clock: Any) -> None:
    table = pa.table({
        "ts": pa.array([1_767_607_200_000_000_123], pa.timestamp("ns")), "price": [0.1 + 0.2], "symbol": ["A"],
    })  # fmt: skip
    path = tmp_path / "floats.parquet"
    pq.write_table(table, path)
    stored: dict[str, Any] = {"kind": "parquet", "path": str(path)}
    with pytest.raises(SourceError, match="take_floats"):
        open_feed_source(stored, order(clock))
    with pytest.raises(SourceError, match="naive_is_utc"):
        open_feed_source({**stored, "take_floats": True}, order(clock))
    source = open_feed_source({**stored, "take_floats": True, "naive_is_utc": True}, order(clock))
    assert [e.body for e in drain(source)] == [{"ts": 1_767_607_200_000, "price": "0.30000000000000004", "symbol": "A"}]
    for wrong, said in (({"path": "/no/such"}, "no such file"), ({"price": "last"}, "no column last")):
        with pytest.raises(SourceError, match=said):
            open_feed_source({**stored, **wrong}, order(clock))


def test_a_csv_file_as_a_feeds_own_source(tmp_path: Path, clock: Any) -> None:
    path = tmp_path / "p.csv"
    path.write_text("day;last\n1767607200000;1.5\n")
    stored = {
        "kind": "csv",
        "path": str(path),
        "event_time": "day",
        "price": "last",
        "fixed_symbol": "A",
        "delimiter": ";",
    }
    [entry] = drain(open_feed_source(stored, order(clock)))
    assert (entry.partition, entry.body) == ("source:f", {"ts": 1_767_607_200_000, "price": "1.5", "symbol": "A"})
