"""Handing a job to the cluster with `flink run`, under a job id chosen by us."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from stack.flink.cluster import flink_environment
from stack.flink.configuration import find_distribution
from stack.home import Home
from stack.jobs.record import Attempt
from stack.jobs.spec import JobSpec

_SUBMIT_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class SubmissionFailure:
    """Why the client gave up."""

    reason: str


def submit(home: Home, rest_url: str, spec: JobSpec, attempt: Attempt) -> SubmissionFailure | None:
    """Run the client to its end. The chosen id makes a second submission of the same attempt fail, not double."""
    options = {"pipeline.name": spec.full_name, **spec.options, "$internal.pipeline.job-id": attempt.job_id}
    command = [
        "/bin/bash", str(find_distribution() / "bin" / "flink"), "run", "-d", "-m", rest_url.removeprefix("http://"),
        *(f"-D{name}={value}" for name, value in options.items()),
        *(("-s", attempt.restored_from) if attempt.restored_from else ()),
        "-py", spec.python_file, *spec.args, "--epoch", str(attempt.epoch),
    ]  # fmt: skip
    environment = {**os.environ, **flink_environment(home), **spec.env}
    log = home.logs / f"submit-{spec.full_name}.log"
    with log.open("w", encoding="utf-8") as output:
        try:
            result = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                cwd=home.flink, timeout=_SUBMIT_TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return SubmissionFailure(f"flink run took more than {_SUBMIT_TIMEOUT_S:.0f} s")
    if result.returncode != 0:
        return SubmissionFailure(_find_cause(log))
    return None


def _find_cause(log: Path) -> str:
    """The line that says most: Python's last error, else Java's innermost cause."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    python = [line for line in lines if "Error:" in line and not line.startswith(("Caused by", "at "))]
    return (python or causes or lines or ["no output"])[-1][:500] + f" (log {log})"
