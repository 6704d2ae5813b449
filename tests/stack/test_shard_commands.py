"""`./alerts reshard`, `rebuild` and `verify` as an operator meets them: what they say, ask for and refuse."""

from __future__ import annotations

import json
import threading

import pytest

from contracts.frames_pb2 import Difference, RebuildMark
from finalizer.domain.batch import BatchPlan, RebuildMarked
from finalizer.ports import Moves
from finalizer.rebuilder import Rebuilder
from sql.connection import Pool
from sql.finalizer_store import PostgresFinalizerStore
from sql.rebuild_store import PostgresRebuildStore
from stack.cli import main
from tests.finalizer.world import SHARD, TOPIC, World


@pytest.fixture
def run(pool: Pool, postgres_server: str, postgres_schema: str, capsys: pytest.CaptureFixture[str]):
    """(exit code, the JSON line or None, stderr) of a command on the test's schema."""
    World(pool)

    def command(*words: str):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--dsn", postgres_server, "--schema", postgres_schema])
        told = capsys.readouterr()
        lines = told.out.splitlines()  # services that the test runs beside it log there too
        return ended.value.code, json.loads(lines[-1]) if lines else None, told.err

    return command


def test_a_reshard_begins_once_and_says_how_far_it_is(run) -> None:
    code, told, _ = run("reshard", "aaa", "--shards", "4", "--no-wait")
    assert (code, told) == (
        0, {"symbol": "AAA", "shards": 4, "began": True, "phase": "OPENING", "copied": 0, "switched": 0},
    )  # fmt: skip
    assert run("reshard", "AAA", "--shards", "4", "--no-wait")[1]["began"] is False
    code, told, error = run("reshard", "AAA", "--shards", "2", "--no-wait")
    assert (code, told) == (1, None)
    assert "AAA is moving from 1 to 4 shards; ask again when it is done" in error
    code, _, error = run("reshard", "AAA", "--shards", "4", "--timeout", "1")
    assert code == 1
    assert "opening: the new shards begin to get the symbol's prices (0 copied, 0 switched)" in error
    assert "shard-upkeep's health file says what for" in error


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("reshard", "NONE", "--shards", "2"), "instrument 'NONE' does not exist"),
        (("rebuild", "--symbol", "NONE"), "instrument 'NONE' does not exist"),
        (("verify", "--feed", "none"), "feed 'none' does not exist"),
        (("verify", "--symbol", "a b c/é"), "symbol"),
    ],
)
def test_what_is_not_there_is_refused(run, words: tuple[str, ...], says: str) -> None:
    code, told, error = run(*words)
    assert (code, told) == (1, None)
    assert says in error


def test_a_rebuild_that_nobody_answers_says_so(run) -> None:
    code, _, error = run("rebuild", "--timeout", "1")
    assert code == 1
    assert f"1 of 1 shards are not through after 1 s, and they go on ({SHARD} is beginning)" in error


class Answering:
    """The driver, and a matcher that finds one rule too much and one of another version."""

    def __init__(self, pool: Pool) -> None:
        self._driver, self._store = Rebuilder(PostgresRebuildStore(pool)), PostgresFinalizerStore(pool)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        ended = RebuildMark(rebuild_id=1, step=RebuildMark.ENDED, surplus=1)
        ended.differences.add(kind=Difference.OTHER_VERSION, alert_id=7, version=3, found_version=2)
        answers = iter((RebuildMark(rebuild_id=1, step=RebuildMark.BEGUN), ended))
        while not self._stopping.wait(0.05):
            if self._driver.step() and (mark := next(answers, None)) is not None:
                position = self._store.positions(TOPIC, 1)[0]
                with self._store.advance(Moves(TOPIC, {0: (position, position + 1)})) as work:
                    work.apply(BatchPlan(rebuild_marks=[RebuildMarked(SHARD, mark)]), 1)


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_differences_are_told_by_name(run, pool: Pool, options: tuple[str, ...]) -> None:
    with Answering(pool):
        code, found, error = run("verify", *options)
    assert code == (1 if options else 0)
    assert found == {
        "shards": 1, "asserted": 0, "known": 0, "missing": 0, "other_version": 0, "surplus": 1,
        "differences": [{"shard": SHARD, "kind": "OTHER_VERSION", "alert_id": 7, "version": 3, "found_version": 2}],
        "mended": not options,
    }  # fmt: skip
    assert f"other version: alert 7 version 3, the index has 2 (shard {SHARD})" in error
