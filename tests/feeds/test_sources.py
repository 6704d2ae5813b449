"""Sources: what becomes an entry, positions that can be gone back to, proof of having caught up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.dead_letter import Reason
from feeds.domain.entry import Refusal
from feeds.settings import GatewaySettings, open_source
from feeds.sources.csv_file import CsvFileSource, CsvLayout
from feeds.sources.kafka_json import KafkaJsonSource
from feeds.sources.scenario_file import ScenarioFileSource, scenario_message, scenario_message_bytes
from feeds.sources.source import Source, SourceError
from ports.memory_log import MemoryLog

CASES = Path(__file__).parents[1] / "scenarios" / "cases"


def drain(source: Source, size: int = 2) -> list[Any]:
    found: list[Any] = []
    while entries := source.poll(size, 0.0):
        found += entries
    return found


def write(folder: Path, text: str | bytes, name: str = "prices.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_kafka_entries_carry_partition_and_offset_and_can_be_read_again(clock: Any) -> None:
    log = MemoryLog({"x.ticks.v1": 2})
    log.add([("x.ticks.v1", str(n).encode(), b'{"n":%d}' % n, 0) for n in range(6)])
    source = KafkaJsonSource(log.reader(), "x.ticks.v1", "ticks.v1", clock)
    source.seek({})
    entries = drain(source)
    assert sorted(entry.body["n"] for entry in entries) == list(range(6))
    assert {entry.partition for entry in entries} == {"ticks.v1/0", "ticks.v1/1"}
    assert sum(source.positions().values()) == 6
    source.seek({"ticks.v1/0": 1})
    assert len(drain(source)) == 5


def test_kafka_has_caught_up_only_when_the_ends_say_so(clock: Any) -> None:
    log = MemoryLog({"ticks.v1": 1})
    log.add([("ticks.v1", b"", b"{}", 0)] * 5)
    source = KafkaJsonSource(log.reader(), "ticks.v1", "ticks.v1", clock)
    source.seek({})
    source.poll(2, 0.0)
    assert source.state().caught_up_at_ms is None
    source.poll(9, 0.0)
    clock.pass_ms(1_000)
    source.poll(9, 0.0)
    assert source.state().caught_up_at_ms == clock.monotonic_ms()
    log.add([("ticks.v1", b"", b"{}", 0)] * 5)
    clock.pass_ms(1_000)
    source.poll(2, 0.0)
    assert source.state().caught_up_at_ms is None


def test_csv_columns_by_name_times_in_both_forms_bad_rows_beside_good(tmp_path: Path, clock: Any) -> None:
    path = write(
        tmp_path,
        b"\xef\xbb\xbfday,last,name,n,s\n1767607200000,1.50,AAA,1,0\n\n2026-01-05T10:00:00Z, 2 ,BBB,,\nshort,1\n"
        b'x\xff,1e5,"A\nB",-1,x\n',
    )
    layout = CsvLayout(event_time="day", price="last", symbol="name", sequence="n", session="s", flush_at_end=True)
    source = CsvFileSource(path, layout, clock)
    entries = drain(source)
    assert [entry.position for entry in entries] == [0, 1, 2, 3, 4]
    assert entries[0].body == {"symbol": "AAA", "ts": 1_767_607_200_000, "price": "1.50", "seq": 1, "session": 0}
    assert entries[1].body == {
        "symbol": "BBB",
        "ts": "2026-01-05T10:00:00Z",
        "price": "2",
        "seq": None,
        "session": None,
    }
    assert isinstance(entries[2].body, Refusal)
    assert entries[3].body["ts"] == "x\\xff"
    assert entries[3].body["seq"] == "-1"
    assert entries[4].body == {"type": "flush"}
    assert source.positions() == {"csv:prices.csv": 5}
    assert source.state().caught_up_at_ms == clock.monotonic_ms()
    source.seek({"csv:prices.csv": 3})
    assert source.state().caught_up_at_ms is None
    assert drain(source) == entries[3:]
    source.seek({"csv:prices.csv": 5})
    assert drain(source) == []
    source.close()


def test_csv_of_one_symbol_and_a_field_without_end(tmp_path: Path, clock: Any) -> None:
    path = write(tmp_path, 'ts;price\n1;2\n2;"' + "x" * 200_000 + '"\n3;4\n')
    source = CsvFileSource(path, CsvLayout(fixed_symbol="AAA", delimiter=";"), clock)
    bodies = [entry.body for entry in drain(source)]
    assert bodies[0] == {"symbol": "AAA", "ts": 1, "price": "2"}
    assert any(isinstance(body, Refusal) and body.reason is Reason.UNREADABLE for body in bodies)
    assert bodies[-1] == {"symbol": "AAA", "ts": 3, "price": "4"}
    source.close()


@pytest.mark.parametrize("text", ["", "ts,price\n1,2\n", None])
def test_a_csv_file_without_its_columns_or_without_itself_is_named(
    tmp_path: Path, text: str | None, clock: Any
) -> None:
    path = tmp_path / "gone.csv" if text is None else write(tmp_path, text)
    with pytest.raises(SourceError, match=r"\.csv"):
        CsvFileSource(path, CsvLayout(), clock)


def test_a_scenarios_ticks_and_heartbeats_in_order_then_a_flush(clock: Any) -> None:
    path = CASES / "heartbeat-releases-held-ticks.jsonl"
    ops = [json.loads(line) for line in path.read_text().splitlines() if line and not line.startswith("#")]
    source = ScenarioFileSource(path, clock)
    entries = drain(source)
    wanted = [scenario_message(op) for op in ops]
    assert [entry.body for entry in entries] == [m for m in wanted if m is not None] + [{"type": "flush"}]
    middle = entries[len(entries) // 2].position
    source.seek({f"scenario:{path.name}": middle})
    assert drain(source) == [entry for entry in entries if entry.position >= middle]
    source.seek({f"scenario:{path.name}": entries[-1].position + 1})
    assert drain(source) == []
    with pytest.raises(SourceError, match="no such file"):
        ScenarioFileSource(CASES / "none", clock)


def test_scenario_operations_as_messages() -> None:
    tick = {"op": "tick", "symbol": "A", "ts": 5, "price": None, "seq": "x", "other": 1}
    assert scenario_message(tick, "f") == {"feed": "f", "symbol": "A", "ts": 5, "price": None, "seq": "x"}
    assert scenario_message_bytes({"op": "heartbeat", "ts": 5}) == b'{"type":"heartbeat","ts":5}'
    assert scenario_message_bytes({"op": "cancel", "id": "a"}, "f") is None


@pytest.mark.parametrize("source", ["", "kafka:x", "csv", "csv:", "mqtt:x"])
def test_a_wrong_source_setting_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="give kafka, csv:PATH or scenario:PATH"):
        GatewaySettings(kafka="h:1", postgres_dsn="", feed_source=source)


def test_settings_name_feeds_and_open_files(tmp_path: Path, clock: Any) -> None:
    path = write(tmp_path, "ts,price\n1,2\n")
    found = GatewaySettings(kafka="h:1", postgres_dsn="", feeds=" a ", feed_source=f"csv:{path}", csv_symbol="A")
    assert found.served().feeds == {"a"}
    assert found.served().default_feed == "a"
    source = open_source(found, clock)
    assert [entry.body for entry in drain(source)] == [{"symbol": "A", "ts": 1, "price": "2"}]
    source.close()
    assert GatewaySettings(kafka="h:1", postgres_dsn="").served().feeds is None
