"""From which state a job goes on: the newest, over all attempts that its name ever had."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stack.jobs.record import (
    Attempt,
    JobRecord,
    drop_old_checkpoints,
    find_checkpoints,
    find_newest_state,
    read_record,
    write_record,
)


def make_state(path: Path, *, complete: bool = True) -> str:
    path.mkdir(parents=True)
    if complete:
        (path / "_metadata").write_bytes(b"state")
    return str(path)


def record_of(*job_ids: str) -> JobRecord:
    return JobRecord(tuple(Attempt(job_id, 1, None, number) for number, job_id in enumerate(job_ids)))


def test_nothing_yet(tmp_path: Path) -> None:
    assert find_newest_state(JobRecord(), tmp_path) is None
    assert find_newest_state(record_of("a"), tmp_path) is None


def test_checkpoints_go_by_number_and_not_by_name(tmp_path: Path) -> None:
    for number in (9, 10, 2):
        make_state(tmp_path / "a" / f"chk-{number}")
    make_state(tmp_path / "a" / "shared")
    assert find_newest_state(record_of("a"), tmp_path) == str(tmp_path / "a" / "chk-10")
    assert [path.name for path in find_checkpoints(tmp_path / "a")] == ["chk-2", "chk-9", "chk-10"]


def test_half_written_checkpoint_does_not_count(tmp_path: Path) -> None:
    make_state(tmp_path / "a" / "chk-7")
    make_state(tmp_path / "a" / "chk-8", complete=False)
    assert find_newest_state(record_of("a"), tmp_path) == str(tmp_path / "a" / "chk-7")


def test_later_attempt_wins_though_its_numbers_are_lower(tmp_path: Path) -> None:
    make_state(tmp_path / "a" / "chk-900")
    make_state(tmp_path / "b" / "chk-1")
    assert find_newest_state(record_of("a", "b"), tmp_path) == str(tmp_path / "b" / "chk-1")


def test_attempts_that_left_nothing_are_passed_over(tmp_path: Path) -> None:
    make_state(tmp_path / "a" / "chk-3")
    assert find_newest_state(record_of("a", "b", "c"), tmp_path) == str(tmp_path / "a" / "chk-3")


def test_savepoint_is_newer_than_the_checkpoints_before_it_only(tmp_path: Path) -> None:
    savepoint = make_state(tmp_path / "savepoint-1")
    make_state(tmp_path / "a" / "chk-50")
    record = record_of("a").with_last(savepoint=savepoint)
    assert find_newest_state(record, tmp_path) == savepoint
    after = record.with_attempt(Attempt("b", 1, savepoint, 9))
    assert find_newest_state(after, tmp_path) == savepoint
    make_state(tmp_path / "b" / "chk-51")
    assert find_newest_state(after, tmp_path) == str(tmp_path / "b" / "chk-51")


def test_deleted_savepoint_falls_back(tmp_path: Path) -> None:
    make_state(tmp_path / "a" / "chk-50")
    record = record_of("a").with_last(savepoint=str(tmp_path / "gone"))
    assert find_newest_state(record, tmp_path) == str(tmp_path / "a" / "chk-50")


def test_state_of_an_epoch_that_is_over_is_no_state(tmp_path: Path) -> None:
    """A later attempt began a new epoch and left no state: what an earlier epoch left is behind its outputs."""
    record = JobRecord((Attempt("a", 1, None, 1), Attempt("b", 2, None, 2)))
    make_state(tmp_path / "a" / "chk-50")
    assert find_newest_state(record, tmp_path) is None
    own = make_state(tmp_path / "b" / "chk-1")
    assert find_newest_state(record, tmp_path) == own
    assert find_newest_state(record.with_attempt(Attempt("c", 2, own, 3)), tmp_path) == own


def test_a_savepoint_of_an_epoch_that_is_over_is_no_state(tmp_path: Path) -> None:
    stopped = record_of("a").with_last(savepoint=make_state(tmp_path / "savepoint-1"))
    assert find_newest_state(stopped.with_attempt(Attempt("b", 2, None, 2)), tmp_path) is None


def test_record_survives_the_file(tmp_path: Path) -> None:
    record = record_of("a", "b").with_last(confirmed=True, savepoint="/s")
    write_record(tmp_path / "record.json", record)
    assert read_record(tmp_path / "record.json") == record
    assert read_record(tmp_path / "none.json") == JobRecord()


def test_record_remembers_a_bounded_number() -> None:
    record = JobRecord()
    for number in range(500):
        record = record.with_attempt(Attempt(str(number), 1, None, number))
    assert len(record.attempts) == 200
    assert record.attempts[-1].job_id == "499"


def test_old_checkpoints_stay_until_the_newest_attempt_has_its_own(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d", "e"]
    for name in names[:-1]:
        make_state(tmp_path / name / "chk-1")
    drop_old_checkpoints(record_of(*names), tmp_path)
    assert all((tmp_path / name).exists() for name in names[:-1])
    make_state(tmp_path / "e" / "chk-1")
    drop_old_checkpoints(record_of(*names), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "d", "e"]


@pytest.mark.parametrize("seed", range(30))
def test_newest_state_against_a_plain_history(tmp_path: Path, seed: int) -> None:
    """Play random histories; the last thing completed is what is found, cleaned up or not."""
    chooser = random.Random(seed)
    record, newest, number = JobRecord(), None, 0
    for step in range(chooser.randint(1, 60)):
        action = chooser.choice(["submit", "checkpoint", "checkpoint", "half", "savepoint", "clean"])
        stopped = record.last is None or record.last.savepoint is not None
        if action == "submit" or (action in ("checkpoint", "half", "savepoint") and stopped):
            record = record.with_attempt(Attempt(f"job{step}", 1, newest, step))
        elif action == "clean":
            drop_old_checkpoints(record, tmp_path)
        elif action == "savepoint":
            newest = make_state(tmp_path / f"savepoint-{step}")
            record = record.with_last(savepoint=newest)
        else:
            number += 1
            assert record.last is not None
            path = make_state(tmp_path / record.last.job_id / f"chk-{number}", complete=action == "checkpoint")
            newest = path if action == "checkpoint" else newest
        assert find_newest_state(record, tmp_path) == newest
