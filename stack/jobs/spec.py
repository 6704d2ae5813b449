"""What should run: one job of one environment."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from stack.errors import StackError
from stack.files import read_json, write_json
from stack.home import Home


@dataclass(frozen=True)
class JobSpec:
    """A PyFlink job. `name` is unique in its environment; `args` get `--epoch N` appended."""

    environment: str
    name: str
    python_file: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    # Flink settings of this job alone, as `-Dname=value`.
    options: dict[str, str] = field(default_factory=dict)
    # A bounded job that has finished is done; any other one is started again.
    bounded: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.environment}-{self.name}"


class JobFolder:
    """The files of one job: what is wanted, what was submitted, the lock on both."""

    def __init__(self, home: Home, full_name: str) -> None:
        self.full_name = full_name
        self.path = home.jobs / full_name
        self.spec_file = self.path / "spec.json"
        self.record_file = self.path / "record.json"
        self.status_file = self.path / "status.json"
        self.lock_file = self.path / "lock"

    def write_spec(self, spec: JobSpec, *, wanted: bool) -> None:
        write_json(self.spec_file, {"spec": asdict(spec), "wanted": wanted}, 0o600)

    def read_spec(self) -> tuple[JobSpec, bool] | None:
        """The spec and whether it should run; None when there is no such job."""
        stored = read_json(self.spec_file, None)
        if stored is None:
            return None
        fields = dict(stored["spec"])
        fields["args"] = tuple(fields["args"])
        return JobSpec(**fields), bool(stored["wanted"])

    def write_status(self, state: str, detail: str = "") -> None:
        """What a person should know; written when it changes, for the keeper says it every second."""
        status = {"state": state, "detail": detail}
        if read_json(self.status_file, None) != status:
            write_json(self.status_file, status, durable=False)

    def require_spec(self) -> tuple[JobSpec, bool]:
        found = self.read_spec()
        if found is None:
            raise StackError(f"there is no job {self.full_name}", where=str(self.path))
        return found


def find_jobs(home: Home, environment: str | None = None) -> list[JobFolder]:
    """Every job of the home, or of one environment."""
    folders = [JobFolder(home, path.parent.name) for path in sorted(home.jobs.glob("*/spec.json"))]
    if environment is None:
        return folders
    return [folder for folder in folders if folder.require_spec()[0].environment == environment]


def job_file(path: Path) -> str:
    """The job's file, checked now: a job that can't be found would only fail minutes later."""
    if not path.is_file():
        raise StackError("the job's Python file is missing", where=str(path))
    return str(path.resolve())
