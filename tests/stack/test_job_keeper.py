"""The keeper's decisions, over an in-memory cluster that behaves as Flink's REST API and client do."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from stack.epochs import counter_file
from stack.flink.configuration import checkpoints_folder
from stack.flink.rest import JobStatus
from stack.home import Home
from stack.job_keeper import JobKeeper
from stack.jobs.record import Attempt, read_record
from stack.jobs.spec import JobFolder, JobSpec, find_jobs
from stack.jobs.submission import SubmissionFailure

SPEC = JobSpec("main", "rolling", "/jobs/rolling.py", ("--kafka", "b:1"))


class Cluster:
    """Jobs by id; a submission can be refused, or get lost on its way back."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.jobs: dict[str, JobStatus] = {}
        self.submitted: list[Attempt] = []
        self.refuse: str | None = None
        self.recorded_before: list[bool] = []
        self.cancelled: list[str] = []

    def submit(self, home: Home, rest_url: str, spec: JobSpec, attempt: Attempt) -> SubmissionFailure | None:
        last = read_record(JobFolder(home, spec.full_name).record_file).last
        self.recorded_before.append(last == attempt)
        self.submitted.append(attempt)
        if self.refuse is not None:
            return SubmissionFailure(self.refuse)
        self.jobs[attempt.job_id] = JobStatus(attempt.job_id, spec.full_name, "RUNNING", 0)
        return None

    def cancel(self, rest_url: str, job_id: str) -> None:
        self.cancelled.append(job_id)
        self.set_state(job_id, "CANCELLING")

    def set_state(self, job_id: str, state: str) -> None:
        self.jobs[job_id] = JobStatus(job_id, "x", state, 0)

    def checkpoint(self, job_id: str, number: int) -> str:
        path = checkpoints_folder(self.home) / job_id / f"chk-{number}"
        path.mkdir(parents=True)
        (path / "_metadata").write_bytes(b"")
        return str(path)


class World:
    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.home.prepare()
        self.cluster = Cluster(self.home)
        self.now_ms = 0
        self.folder = JobFolder(self.home, SPEC.full_name)
        self.folder.write_spec(SPEC, wanted=True)
        self.restart_keeper()

    def restart_keeper(self) -> None:
        self.keeper = JobKeeper(
            self.home, "http://none", epochs=counter_file(self.home.counters_file, lambda: 0),
            submit=self.cluster.submit, cancel=self.cluster.cancel, now_ms=lambda: self.now_ms,
        )  # fmt: skip

    def step(self, later_ms: int = 120_000) -> None:
        self.now_ms += later_ms
        self.keeper.step(self.folder, list(self.cluster.jobs.values()))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_missing_job_is_submitted_once(world: World) -> None:
    for _ in range(5):
        world.step()
    assert len(world.cluster.submitted) == 1
    assert world.cluster.recorded_before == [True]
    assert (world.cluster.submitted[0].epoch, world.cluster.submitted[0].restored_from) == (1, None)


def test_forgotten_job_goes_on_from_its_newest_checkpoint_in_its_epoch(world: World) -> None:
    world.step()
    state = world.cluster.checkpoint(world.cluster.submitted[0].job_id, 12)
    world.cluster.jobs.clear()
    world.step()
    again = world.cluster.submitted[1]
    assert (again.restored_from, again.epoch) == (state, 1)
    assert again.job_id != world.cluster.submitted[0].job_id


def test_job_that_left_no_state_takes_a_higher_epoch(world: World) -> None:
    world.step()
    world.cluster.jobs.clear()
    world.step()
    assert [attempt.epoch for attempt in world.cluster.submitted] == [1, 2]


@pytest.mark.parametrize("state", ["FAILED", "CANCELED", "FINISHED"])
def test_ended_job_is_started_again(world: World, state: str) -> None:
    world.step()
    world.cluster.set_state(world.cluster.submitted[0].job_id, state)
    world.step()
    assert len(world.cluster.submitted) == 2


@pytest.mark.parametrize("state", ["INITIALIZING", "CREATED", "RESTARTING", "FAILING", "CANCELLING", "RECONCILING"])
def test_job_on_its_way_is_not_doubled(world: World, state: str) -> None:
    world.step()
    world.cluster.set_state(world.cluster.submitted[0].job_id, state)
    world.step()
    assert len(world.cluster.submitted) == 1


def test_bounded_job_that_finished_is_done(world: World) -> None:
    bounded = JobSpec("main", "once", "/jobs/once.py", bounded=True)
    world.folder = JobFolder(world.home, bounded.full_name)
    world.folder.write_spec(bounded, wanted=True)
    world.step()
    world.cluster.set_state(world.cluster.submitted[0].job_id, "FINISHED")
    world.step()
    assert len(world.cluster.submitted) == 1


def test_unwanted_job_is_left_alone(world: World) -> None:
    world.folder.write_spec(SPEC, wanted=False)
    world.step()
    assert world.cluster.submitted == []


def test_keeper_killed_after_the_submission_does_not_double(world: World) -> None:
    world.step()
    world.restart_keeper()
    world.step()
    assert len(world.cluster.submitted) == 1
    assert read_record(world.folder.record_file).attempts[0].confirmed


def test_older_attempt_that_turns_up_late_counts(world: World) -> None:
    """The client reported a failure, and the job came all the same."""
    world.cluster.refuse = "timed out"
    world.step()
    late = world.cluster.submitted[0].job_id
    world.cluster.set_state(late, "RUNNING")
    world.step()
    world.step()
    assert len(world.cluster.submitted) == 1


def test_of_several_copies_the_newest_stays(world: World) -> None:
    """The first submission was reported lost, the second ran; then the first came after all."""
    world.cluster.refuse = "timed out"
    for _ in range(2):
        world.step()
    world.cluster.refuse = None
    world.step()
    first, second, third = (attempt.job_id for attempt in world.cluster.submitted)
    world.cluster.set_state(first, "RUNNING")
    world.cluster.set_state(second, "RUNNING")
    for _ in range(3):
        world.step()
    assert world.cluster.cancelled == [first, second]
    assert world.cluster.jobs[third].state == "RUNNING"
    assert len(world.cluster.submitted) == 3


def test_a_copy_of_an_epoch_that_is_over_is_no_copy(world: World) -> None:
    """Readers pass over all that it writes; alone it would be a job that runs for nothing."""
    world.cluster.refuse = "timed out"
    world.step()
    world.cluster.refuse = None
    world.step()
    old, new = world.cluster.submitted
    assert old.epoch < new.epoch
    del world.cluster.jobs[new.job_id]
    world.cluster.set_state(old.job_id, "RUNNING")
    world.step()
    assert (world.cluster.cancelled, len(world.cluster.submitted)) == ([old.job_id], 2)
    world.cluster.set_state(old.job_id, "CANCELED")
    world.step()
    assert len(world.cluster.submitted) == 3


def test_state_of_an_earlier_epoch_is_not_taken(world: World) -> None:
    world.step()
    first = world.cluster.submitted[0]
    world.cluster.jobs.clear()
    world.step()
    world.cluster.jobs.clear()
    world.cluster.checkpoint(first.job_id, 7)  # the first attempt was still writing it when it was given up
    world.step()
    assert [(attempt.epoch, attempt.restored_from) for attempt in world.cluster.submitted] == [
        (1, None), (2, None), (3, None)
    ]  # fmt: skip


def test_refused_submission_is_said_and_tried_at_growing_intervals(world: World) -> None:
    world.cluster.refuse = "ModuleNotFoundError: no module named flink_jobs"
    times = []
    for _ in range(300):
        before = len(world.cluster.submitted)
        world.step(later_ms=1_000)
        if len(world.cluster.submitted) > before:
            times.append(world.now_ms)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps[:6] == [2_000, 4_000, 8_000, 16_000, 32_000, 60_000]
    assert "no module named flink_jobs" in world.folder.status_file.read_text()


def test_held_job_is_not_touched(world: World) -> None:
    """`stop_with_savepoint` holds the lock while it works."""
    from stack.files import locked

    with locked(world.folder.lock_file, busy="x", wait_s=1):
        thread = threading.Thread(target=world.step)
        thread.start()
        thread.join(10)
    assert world.cluster.submitted == []
    world.step()
    assert len(world.cluster.submitted) == 1


def test_jobs_are_found_by_environment(world: World) -> None:
    other = JobSpec("replay-1", "rolling", "/jobs/rolling.py")
    JobFolder(world.home, other.full_name).write_spec(other, wanted=True)
    assert [folder.full_name for folder in find_jobs(world.home)] == ["main-rolling", "replay-1-rolling"]
    assert [folder.full_name for folder in find_jobs(world.home, "replay-1")] == ["replay-1-rolling"]
    assert JobFolder(world.home, SPEC.full_name).require_spec() == (SPEC, True)
