"""Scenario files as operations: what is read, what is refused and with which words."""

from __future__ import annotations

import pytest

from contracts.vocabulary import Direction, Kind
from stack.replay.recording import write_recording
from stack.replay.scenario import Create, Heartbeat, ScenarioError, Settings, Tick, parse_scenario, read_scenario
from tests.scenarios.answers import CASES, generate

INSTRUMENT = b'{"op": "instrument", "symbol": "AAA", "decimals": 2}'


def test_operations_keep_their_order_and_comments_are_skipped() -> None:
    scenario = parse_scenario(
        "s",
        [
            b"# a comment",
            b'{"op": "settings", "reorder_ms": 0}',
            INSTRUMENT,
            b"",
            b'{"op": "tick", "symbol": "AAA", "ts": "2026-01-05T10:00:00Z", "price": "1e3", "seq": 1}',
            b'{"op": "create", "id": "a", "user": "u", "symbol": "AAA", "kind": "change", "direction": "UP",'
            b' "window": "1h", "bps": 500, "expires_at": "2026-01-05T11:00:00+01:00"}',
            b'{"op": "heartbeat", "ts": 5}',
        ],
    )
    settings, _, tick, create, heartbeat = scenario.operations
    assert settings == Settings(reorder_ms=0)
    assert tick == Tick("AAA", {"ts": "2026-01-05T10:00:00Z", "price": "1e3", "seq": 1})
    assert create == Create(
        "a", "u", "AAA", Kind.CHANGE, Direction.UP, window="1h", bps=500, expires_at_ms=1_767_607_200_000
    )
    assert heartbeat == Heartbeat(5)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "line 2: not playable"),
        (b"[]", "line 2: not playable"),
        (b'{"op": "explode"}', "unknown op 'explode'"),
        (b'{"op": "heartbeat"}', "field 'ts' is missing"),
        (b'{"op": "heartbeat", "ts": "2026-01-05T10:00:00"}', "no offset"),
        (b'{"op": "settings", "reference_age_ms": {"2h": 1}}', "no such window"),
        (b'{"op": "cancel", "id": "a"}', "alert 'a' is not there yet"),
        (b'{"op": "resume", "symbol": "BBB"}', "instrument 'BBB' is not there yet"),
        (INSTRUMENT, "instrument 'AAA' is there already"),
        (b'{"op": "create", "id": "a", "user": "u", "symbol": "AAA", "kind": "odd", "direction": "UP"}', "'odd'"),
    ],
)
def test_what_cannot_be_played_is_named_with_its_line(line: bytes, words: str) -> None:
    with pytest.raises(ScenarioError, match=r"file\.jsonl, line 2: ") as caught:
        parse_scenario("s", [INSTRUMENT, line], "file.jsonl")
    assert words in str(caught.value)


@pytest.mark.parametrize("seed", [1, 5])
def test_a_recording_reads_back_as_what_was_played(seed: int, tmp_path) -> None:
    scenario = parse_scenario("s", generate(seed).splitlines())
    write_recording(tmp_path / "again.jsonl", scenario.operations)
    assert read_scenario(tmp_path / "again.jsonl").operations == scenario.operations


def test_every_handed_case_can_be_read() -> None:
    assert len(CASES) == 26
    assert all(read_scenario(case).operations for case in CASES)
