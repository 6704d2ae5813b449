"""State of every released version is read by this code, and this code still writes those bytes.

A format that changes gets a new version byte and a new golden file; the old file stays and must still be read.
`python -m tests.flink_jobs.domain.test_matcher_golden` writes a file that is missing.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.state import MemoryState
from tests.flink_jobs.domain.shard_log import (
    SHARD,
    Create,
    Heartbeat,
    Remove,
    Rule,
    Split,
    entries_of,
    fired,
    metric_record,
    moved,
    priced,
    records_of,
)

FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = FOLDER / "matcher_state_v2.json"
RELEASED = sorted(FOLDER.glob("matcher_state_v*.json"))


def written_state() -> MemoryState:
    """A state with every kind of entry: runs with dead rows, symbols with splits, tombstones, a journal behind."""
    state = MemoryState()
    core = MatcherCore(state, SHARD, 4, delta_rows=4)
    log = [Create(Rule(n, "AAA", "EITHER" if n % 2 else "UP", 100 * n)) for n in range(1, 65)]
    log += [moved("AAA", 50, 0, 150), Split("BBB", 70, 3, 1), Remove(Rule(2, "AAA", "UP", 200))]
    log += [Create(Rule(130, "BBB", "ABOVE", 90, None)), Create(Rule(131, "BBB", "ABOVE", 91, None, created_at_ms=75))]
    log += [Create(Rule(140 + n, "CCC", "DOWN", 7)) for n in range(4)] + [
        Heartbeat(60),
        Create(Rule(160, "CCC", "DOWN", 8)),
    ]
    for record in records_of(log, range(64, len(log))):
        list(core.process(record))
    return state


def test_this_code_writes_the_golden_bytes() -> None:
    golden = json.loads(GOLDEN.read_text())
    assert {name: value.hex() for name, value in written_state().items()} == golden
    kinds = {name.split("/")[0] for name in golden}
    assert kinds == {"header", "journal", "page", "keys", "dead", "symbols", "tombstones"}


@pytest.mark.parametrize("released", RELEASED, ids=lambda path: path.stem)
def test_the_golden_bytes_are_read(released: Path) -> None:
    golden = {name: bytes.fromhex(value) for name, value in json.loads(released.read_text()).items()}
    core = MatcherCore(MemoryState(golden), SHARD, 9)
    assert core.metrics()["rules"] == 62 + 2 + 5
    log = [
        moved("AAA", 80, 0, 400),
        priced("BBB", 81, 29, 30, 80),
        priced("BBB", 82, 90, 91, 81),
        moved("CCC", 83, 0, -9),
    ]
    assert fired(entries_of(core.process(metric_record(log, 4)))) == [3, 4, 130, 131, 140, 141, 142, 143, 160]


if __name__ == "__main__" and not GOLDEN.exists():
    GOLDEN.write_text(
        json.dumps({name: value.hex() for name, value in sorted(written_state().items())}, indent=0) + "\n"
    )
