"""What other code does with jobs: put one in, wait for it, stop it with a savepoint, take it out."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

import httpx

from stack.errors import StackError
from stack.files import locked, read_json
from stack.flink.configuration import checkpoints_folder, savepoints_folder
from stack.flink.rest import FlinkRest, JobStatus
from stack.home import Home
from stack.jobs.record import read_record, write_record
from stack.jobs.spec import JobFolder, JobSpec

_POLL_S = 0.2
_LOCK_WAIT_S = 240.0


class JobControl:
    """The jobs of one home. The keeper process does the submitting; this writes what is wanted and waits."""

    def __init__(self, home: Home, rest_url: str) -> None:
        self._home = home
        self._rest_url = rest_url

    def put(self, spec: JobSpec) -> None:
        """Have the job kept running from now on."""
        folder = JobFolder(self._home, spec.full_name)
        with self.hold(folder):
            folder.write_spec(spec, wanted=True)
            folder.write_status("WAITING", "not yet submitted")

    def wait_running(self, full_name: str, timeout_s: float = 180.0) -> str:
        """Wait until every task of the job runs; returns its job id."""
        folder = JobFolder(self._home, full_name)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            job = self.find_running(folder)
            if job is not None and self._tasks_run(job):
                return job.job_id
            time.sleep(_POLL_S)
        detail = read_json(folder.status_file, {}).get("detail") or "it is still starting"
        raise StackError(
            f"the job {full_name} does not run after {timeout_s:.0f} s", remedy=f"{detail}; see `./alerts status`"
        )

    def find_running(self, folder: JobFolder) -> JobStatus | None:
        """The live job of the last attempt, if the cluster has it."""
        last = read_record(folder.record_file).last
        if last is None:
            return None
        try:
            with FlinkRest(self._rest_url) as rest:
                job = rest.job(last.job_id)
        except httpx.HTTPError:
            return None
        return job if job is not None and job.is_alive else None

    def stop_with_savepoint(self, full_name: str, *, drain: bool = False, timeout_s: float = 120.0) -> str | None:
        """Stop the job, keep its state, and don't start it again until `put` or `want`.

        Returns the savepoint; None when the job wasn't running, its newest checkpoint then counts.
        """
        folder = JobFolder(self._home, full_name)
        spec, _ = folder.require_spec()
        with self.hold(folder):
            folder.write_spec(spec, wanted=False)
            job = self.find_running(folder)
            if job is None:
                folder.write_status("STOPPED", "was not running")
                return None
            location = self._take_savepoint(job.job_id, drain, timeout_s)
            write_record(folder.record_file, read_record(folder.record_file).with_last(savepoint=location))
            folder.write_status("STOPPED", f"savepoint {location}")
            return location

    def cancel(self, full_name: str, timeout_s: float = 60.0) -> None:
        """Stop the job without a savepoint and don't start it again."""
        folder = JobFolder(self._home, full_name)
        spec, _ = folder.require_spec()
        with self.hold(folder):
            folder.write_spec(spec, wanted=False)
            job = self.find_running(folder)
            if job is not None:
                with FlinkRest(self._rest_url) as rest:
                    rest.cancel(job.job_id)
                deadline = time.monotonic() + timeout_s
                while self.find_running(folder) is not None:
                    if time.monotonic() > deadline:
                        raise StackError(f"the job {full_name} does not end", where=self._rest_url)
                    time.sleep(_POLL_S)
            folder.write_status("STOPPED", "cancelled")

    def want(self, full_name: str) -> None:
        """Have a stopped job run again, from its newest state."""
        self.put(JobFolder(self._home, full_name).require_spec()[0])

    def remove(self, full_name: str) -> None:
        """Cancel the job and forget it, with its checkpoints and savepoints."""
        folder = JobFolder(self._home, full_name)
        if folder.read_spec() is None:
            return
        self.cancel(full_name)
        with self.hold(folder):
            for attempt in read_record(folder.record_file).attempts:
                shutil.rmtree(checkpoints_folder(self._home) / attempt.job_id, ignore_errors=True)
                if attempt.savepoint is not None:
                    shutil.rmtree(attempt.savepoint, ignore_errors=True)
            shutil.rmtree(folder.path, ignore_errors=True)

    @contextmanager
    def hold(self, folder: JobFolder) -> Iterator[None]:
        """Keep the keeper away from the job."""
        with locked(folder.lock_file, busy=f"the job {folder.full_name} is being submitted", wait_s=_LOCK_WAIT_S):
            yield

    def _tasks_run(self, job: JobStatus) -> bool:
        if job.state != "RUNNING":
            return False
        try:
            with FlinkRest(self._rest_url) as rest:
                return rest.tasks_running(job.job_id)
        except httpx.HTTPError:
            return False

    def _take_savepoint(self, job_id: str, drain: bool, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        failure = "no answer in time"
        with FlinkRest(self._rest_url) as rest:
            while time.monotonic() < deadline:
                request = rest.request_stop(job_id, savepoints_folder(self._home).as_uri(), drain)
                while time.monotonic() < deadline:
                    progress = rest.savepoint(job_id, request)
                    if progress.done and progress.location is not None:
                        return str(Path(unquote(urlparse(progress.location).path)))
                    if progress.done:
                        failure = str(progress.failure).splitlines()[0]
                        break
                    time.sleep(_POLL_S)
                # a task that is just restarting refuses: worth another try while there is time
                time.sleep(1.0)
        raise StackError(f"no savepoint of job {job_id}: {failure}", remedy="its newest checkpoint stays usable")
