"""The keeper: a supervised process that keeps every wanted job on the cluster, wakes given-up programs, rotates logs.

A standalone session cluster forgets its jobs with its JobManager. The keeper compares what is wanted with what the
cluster lists and submits what is missing, from the newest state. It never has two copies of a job for long: an attempt
is recorded, under a job id of our choice, before it is submitted, and one that comes late beside a newer is cancelled.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import structlog

from stack.epochs import EpochSource, counter_file
from stack.errors import StackError
from stack.files import locked, write_json
from stack.flink.cluster import TASKMANAGER
from stack.flink.configuration import checkpoints_folder
from stack.flink.rest import FlinkRest, JobStatus
from stack.home import Home
from stack.jobs.record import Attempt, JobRecord, drop_old_checkpoints, find_newest_state, read_record, write_record
from stack.jobs.spec import JobFolder, JobSpec, find_jobs
from stack.jobs.submission import SubmissionFailure, submit
from stack.log_rotation import rotate_logs
from stack.orphans import find_processes, find_strays
from stack.supervision import Supervisor

_POLL_S = 1.0
_BACKOFF_FIRST_S, _BACKOFF_MOST_S = 2.0, 60.0
_CLEAN_EVERY_S = 30.0
_LOCK_WAIT_S = 0.5
_CLIENT_WAIT_S, _SETTLE_S = 200.0, 3.0
KEEPER = "job-keeper"

Submit = Callable[[Home, str, JobSpec, Attempt], SubmissionFailure | None]
Cancel = Callable[[str, str], None]  # REST address, job id
log = structlog.get_logger()


def cancel(rest_url: str, job_id: str) -> None:
    """Ask the cluster to end a job; it is listed as CANCELLING for a while. Raises httpx.HTTPError."""
    with FlinkRest(rest_url) as rest:
        rest.cancel(job_id)


class JobKeeper:
    """One step at a time for each job; `step` is all there is to it."""

    def __init__(
        self, home: Home, rest_url: str, *, epochs: EpochSource, submit: Submit = submit, cancel: Cancel = cancel,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:  # fmt: skip
        self._home = home
        self._rest_url = rest_url
        self._epochs = epochs
        self._submit = submit
        self._cancel = cancel
        self._now_ms = now_ms
        self._failures: dict[str, int] = {}
        self._not_before_ms: dict[str, int] = {}

    def step(self, folder: JobFolder, jobs: list[JobStatus]) -> None:
        """Bring one job a step nearer to what is wanted. `jobs` is what the cluster listed just now."""
        try:
            with locked(folder.lock_file, busy="held", wait_s=_LOCK_WAIT_S):
                found = folder.read_spec()
                if found is None or not found[1]:
                    return
                self._keep(folder, found[0], {job.job_id: job for job in jobs})
        except StackError as error:
            if not folder.spec_file.exists():
                return
            log.warning("job_step_failed", job=folder.full_name, error=str(error))

    def clean(self, folder: JobFolder) -> None:
        with locked(folder.lock_file, busy="held", wait_s=_LOCK_WAIT_S):
            drop_old_checkpoints(read_record(folder.record_file), checkpoints_folder(self._home))

    def _keep(self, folder: JobFolder, spec: JobSpec, jobs: dict[str, JobStatus]) -> None:
        record = read_record(folder.record_file)
        alive = [jobs[a.job_id] for a in record.attempts if a.job_id in jobs and jobs[a.job_id].is_alive]
        if alive:
            self._end_copies(spec, record, alive)
            if record.last is not None and not record.last.confirmed:
                write_record(folder.record_file, record.with_last(confirmed=True))
            self._failures.pop(spec.full_name, None)
            folder.write_status(alive[-1].state)
            return
        last = jobs.get(record.last.job_id) if record.last is not None else None
        if last is not None and last.state == "FINISHED" and spec.bounded:
            folder.write_status("FINISHED")
            return
        if self._now_ms() < self._not_before_ms.get(spec.full_name, 0):
            return
        self._start(folder, spec, record)

    def _end_copies(self, spec: JobSpec, record: JobRecord, alive: list[JobStatus]) -> None:
        """Of the live attempts only the newest of the highest epoch stays; of an earlier one, readers pass over all."""
        epochs = {attempt.job_id: attempt.epoch for attempt in record.attempts}
        running = [job.job_id for job in alive if job.state != "CANCELLING"]
        kept = [job_id for job_id in running if epochs[job_id] == record.highest_epoch][-1:]
        for job_id in running:
            if job_id in kept:
                continue
            log.warning("job_copy_cancelled", job=spec.full_name, job_id=job_id, epoch=epochs[job_id], kept=kept)
            try:
                self._cancel(self._rest_url, job_id)
            except httpx.HTTPError as error:  # the next step tries again
                log.warning("job_copy_not_cancelled", job=spec.full_name, job_id=job_id, error=str(error))

    def _start(self, folder: JobFolder, spec: JobSpec, record: JobRecord) -> None:
        state = find_newest_state(record, checkpoints_folder(self._home))
        epoch = record.highest_epoch if state is not None else self._epochs(spec.full_name)
        attempt = Attempt(uuid.uuid4().hex, epoch, state, self._now_ms())
        write_record(folder.record_file, record.with_attempt(attempt))
        folder.write_status("SUBMITTING", f"from {state or 'no state'}")
        log.info("job_submitting", job=spec.full_name, job_id=attempt.job_id, epoch=epoch, state=state)
        failure = self._submit(self._home, self._rest_url, spec, attempt)
        failures = self._failures.get(spec.full_name, 0) + 1
        self._failures[spec.full_name] = failures
        # counts down only once the job was seen alive: a job that dies at once is not restarted at once for ever
        wait_s = min(_BACKOFF_MOST_S, _BACKOFF_FIRST_S * 2 ** (failures - 1))
        self._not_before_ms[spec.full_name] = self._now_ms() + int(wait_s * 1000)
        if failure is not None:
            folder.write_status("NOT SUBMITTED", failure.reason)
            log.error("job_not_submitted", job=spec.full_name, reason=failure.reason, retry_in_s=wait_s)
        else:
            folder.write_status("SUBMITTED")


class KeeperLoop:
    """The process around the keeper."""

    def __init__(self, home: Home, rest_url: str) -> None:
        self._home = home
        self._rest_url = rest_url
        self._keeper = JobKeeper(home, rest_url, epochs=counter_file(home.counters_file))
        self._supervisor = Supervisor(home)
        self._stopping = threading.Event()

    def stop(self, *_: object) -> None:
        self._stopping.set()

    def run(self) -> None:
        self._await_other_clients()
        next_cleaning = 0.0
        with ThreadPoolExecutor(max_workers=2, thread_name_prefix="submit") as submitters:
            busy: dict[str, Future[None]] = {}
            while not self._stopping.wait(_POLL_S):
                self._write_health()
                self._wake_programs()
                jobs = self._list_jobs()
                folders = find_jobs(self._home)
                if jobs is None:
                    continue
                for folder in folders:
                    running = busy.get(folder.full_name)
                    if running is None or running.done():
                        busy[folder.full_name] = submitters.submit(self._step, folder)
                if time.monotonic() > next_cleaning:
                    next_cleaning = time.monotonic() + _CLEAN_EVERY_S
                    rotate_logs(self._home.logs)
                    self._end_stray_workers()
                    for folder in folders:
                        self._clean(folder)

    def _await_other_clients(self) -> None:
        """A killed keeper's client may still be handing in a job: wait for its end, then for the cluster."""
        me = psutil.Process()
        own = {me.pid, *(child.pid for child in me.children(recursive=True))}
        strangers = [o.process for o in find_processes(self._home) if o.program == KEEPER and o.pid not in own]
        if strangers:
            log.info("awaiting_clients", pids=[process.pid for process in strangers])
            psutil.wait_procs(strangers, timeout=_CLIENT_WAIT_S)
            self._stopping.wait(_SETTLE_S)

    def _step(self, folder: JobFolder) -> None:
        # listed inside the step: an older list could miss a job that has just come
        jobs = self._list_jobs()
        if jobs is not None:
            self._keeper.step(folder, jobs)

    def _clean(self, folder: JobFolder) -> None:
        try:
            self._keeper.clean(folder)
        except StackError:
            log.debug("job_busy", job=folder.full_name)

    def _list_jobs(self) -> list[JobStatus] | None:
        try:
            with FlinkRest(self._rest_url) as rest:
                # without slots a submission would only queue up and time out
                return rest.jobs() if rest.slots_total() > 0 else None
        except httpx.HTTPError:
            return None

    def _wake_programs(self) -> None:
        """supervisord gives up on a program that fails often; its dependency may be back."""
        try:
            for state in self._supervisor.states().values():
                if state.is_given_up:
                    log.warning("program_woken", program=state.name)
                    self._supervisor.start_program(state.name)
        except StackError as error:
            log.warning("supervisor_unreachable", error=str(error))

    def _end_stray_workers(self) -> None:
        """A Python worker that was starting when its TaskManager died waits for it for ever, with its memory."""
        strays = find_strays(self._home, TASKMANAGER)
        if strays:
            log.warning("stray_workers_ended", pids=[process.pid for process in strays])
        for process in strays:
            with suppress(psutil.Error):
                process.kill()

    def _write_health(self) -> None:
        write_json(
            self._home.health / f"{KEEPER}.json",
            {"ok": True, "at_ms": time.time_ns() // 1_000_000, "detail": {}},
            durable=False,
        )


def main() -> None:
    """`python -m stack.job_keeper HOME REST_URL`."""
    loop = KeeperLoop(Home(Path(sys.argv[1])), sys.argv[2])
    signal.signal(signal.SIGTERM, loop.stop)
    signal.signal(signal.SIGINT, loop.stop)
    loop.run()


if __name__ == "__main__":
    main()
