"""The few calls of Flink's REST API that the stack makes."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

_TIMEOUT_S = 10.0
# Made once: loading the CA bundle takes tens of milliseconds, and the keeper asks every second.
_TLS = ssl.create_default_context()
# states of a job that holds slots or will again
_ALIVE = frozenset(
    {"INITIALIZING", "CREATED", "RUNNING", "FAILING", "RESTARTING", "RECONCILING", "CANCELLING", "SUSPENDED"}
)


@dataclass(frozen=True)
class JobStatus:
    """A job as the JobManager lists it."""

    job_id: str
    name: str
    state: str
    started_at_ms: int

    @property
    def is_alive(self) -> bool:
        return self.state in _ALIVE


@dataclass(frozen=True)
class CheckpointStatus:
    """The newest complete checkpoint of a running job."""

    checkpoint_id: int
    completed_at_ms: int
    state_bytes: int
    path: str


@dataclass(frozen=True)
class SavepointProgress:
    """What became of a savepoint request."""

    done: bool
    location: str | None
    failure: str | None


class FlinkRest:
    """A client; use it as a context manager."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=_TIMEOUT_S, trust_env=False, verify=_TLS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._client.close()

    def slots_total(self) -> int:
        return int(self._get("/overview")["slots-total"])

    def jobs(self) -> list[JobStatus]:
        return [
            JobStatus(job["jid"], job["name"], job["state"], job["start-time"])
            for job in self._get("/jobs/overview")["jobs"]
        ]

    def job(self, job_id: str) -> JobStatus | None:
        return next((job for job in self.jobs() if job.job_id == job_id), None)

    def tasks_running(self, job_id: str) -> bool:
        """Whether every task of the job runs: the job's own state says RUNNING before that."""
        vertices = self._get(f"/jobs/{job_id}")["vertices"]
        return bool(vertices) and all(vertex["status"] == "RUNNING" for vertex in vertices)

    def latest_checkpoint(self, job_id: str) -> CheckpointStatus | None:
        newest = (self._get(f"/jobs/{job_id}/checkpoints").get("latest") or {}).get("completed")
        if not newest:
            return None
        return CheckpointStatus(
            newest["id"], newest["latest_ack_timestamp"], newest["state_size"], newest["external_path"]
        )

    def root_exception(self, job_id: str) -> str | None:
        history = self._get(f"/jobs/{job_id}/exceptions").get("exceptionHistory", {}).get("entries", [])
        return str(history[0]["stacktrace"]) if history else None

    def request_stop(self, job_id: str, folder: str, drain: bool) -> str:
        """Ask for a stop with savepoint; returns the request's id.

        Native format: as quick as a checkpoint, and Python's state is opaque bytes in either.
        """
        body = {"targetDirectory": folder, "drain": drain, "formatType": "NATIVE"}
        answer = self._client.post(f"/jobs/{job_id}/stop", json=body).raise_for_status()
        return str(answer.json()["request-id"])

    def savepoint(self, job_id: str, request_id: str) -> SavepointProgress:
        """A request can be COMPLETED with a failure-cause: that is a failure."""
        answer = self._get(f"/jobs/{job_id}/savepoints/{request_id}")
        if answer["status"]["id"] != "COMPLETED":
            return SavepointProgress(done=False, location=None, failure=None)
        operation = answer.get("operation") or {}
        cause = operation.get("failure-cause")
        if cause is not None or not operation.get("location"):
            text = str((cause or {}).get("stack-trace", "no location was given"))
            return SavepointProgress(done=True, location=None, failure=text)
        return SavepointProgress(done=True, location=str(operation["location"]), failure=None)

    def cancel(self, job_id: str) -> None:
        self._client.patch(f"/jobs/{job_id}", params={"mode": "cancel"}).raise_for_status()

    def _get(self, path: str) -> Any:
        return self._client.get(path).raise_for_status().json()
