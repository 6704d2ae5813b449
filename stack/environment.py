"""An environment: a topic prefix, a schema, and its services and jobs. One stack carries several side by side."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from stack.errors import StackError
from stack.files import read_json, write_json
from stack.home import Home
from stack.jobs.spec import JobSpec, job_file
from stack.listening_ports import LOOPBACK
from stack.program import Program, inherited_env
from stack.services import JOBS, SERVICES, Job, Service
from stack.settings import REPOSITORY

MAIN = "main"
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Environment:
    """What distinguishes one environment from another. Kept in the home, so `up` makes it again."""

    name: str
    topic_prefix: str
    schema: str
    services: tuple[str, ...] = tuple(service.name for service in SERVICES)
    jobs: tuple[str, ...] = tuple(job.name for job in JOBS)
    # More ALERTS_… variables for its services and jobs: mail server, source, clock.
    env: dict[str, str] = field(default_factory=dict)
    # Flink settings for its jobs.
    job_options: dict[str, str] = field(default_factory=dict)

    def program_name(self, service: str) -> str:
        return f"{self.name}-{service}"

    @property
    def port_name(self) -> str:
        return f"{self.name}_api"

    def find_services(self) -> list[Service]:
        return _pick(self.services, {service.name: service for service in SERVICES}, "service")

    def find_jobs(self) -> list[Job]:
        return _pick(self.jobs, {job.name: job for job in JOBS}, "job")


@dataclass(frozen=True)
class Addresses:
    """Where the shared parts listen."""

    kafka: str
    postgres_dsn: str
    flink_rest_url: str


def archive_folder(name: str, home: Home) -> Path:
    """Where an environment's prices are kept, unless its operator says otherwise."""
    return home.archives / name


def service_env(
    environment: Environment, addresses: Addresses, api_port: int, log_level: str, archive: Path
) -> dict[str, str]:
    """The variables of every service and job of the environment; `ALERTS_HEALTH_FILE` comes with the program."""
    return {
        "ALERTS_KAFKA": addresses.kafka,
        "ALERTS_POSTGRES_DSN": addresses.postgres_dsn,
        "ALERTS_POSTGRES_SCHEMA": environment.schema,
        "ALERTS_TOPIC_PREFIX": environment.topic_prefix,
        "ALERTS_API_HOST": LOOPBACK,
        "ALERTS_API_PORT": str(api_port),
        "ALERTS_LOG_LEVEL": log_level,
        "ALERTS_ARCHIVE_FOLDER": str(archive),
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONUNBUFFERED": "1",
        **environment.env,
    }


def service_program(environment: Environment, service: Service, env: dict[str, str], home: Home) -> Program:
    return Program(
        name=environment.program_name(service.name),
        command=service.command,
        directory=home.root,
        env={**inherited_env(), **env},
        priority=service.priority,
        stop_wait_s=service.stop_wait_s,
        writes_health=True,
    )


def job_spec(environment: Environment, job: Job, env: dict[str, str]) -> JobSpec:
    """The job reads the same variables as the services, in the client; its arguments repeat what a person looks for."""
    return JobSpec(
        environment=environment.name,
        name=job.name,
        python_file=job_file(job.file),
        args=("--kafka", env["ALERTS_KAFKA"], "--topic-prefix", environment.topic_prefix),
        env=env,
        options=environment.job_options,
    )


def store(environment: Environment, home: Home) -> None:
    write_json(home.environments / f"{environment.name}.json", asdict(environment), 0o600)


def forget(name: str, home: Home) -> None:
    (home.environments / f"{name}.json").unlink(missing_ok=True)


def load_all(home: Home) -> list[Environment]:
    return [_load(read_json(path, {})) for path in sorted(home.environments.glob("*.json"))]


def _load(stored: dict[str, object]) -> Environment:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    return Environment(**fields)  # type: ignore[arg-type]


def _pick(names: tuple[str, ...], table: dict[str, _Row], kind: str) -> list[_Row]:
    unknown = [name for name in names if name not in table]
    if unknown:
        raise StackError(f"there is no {kind} {unknown[0]}", remedy=f"known are {', '.join(table)}")
    return [table[name] for name in names]
