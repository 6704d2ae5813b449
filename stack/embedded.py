"""The embedded stack as a whole: up, down, and the environments on it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable

from sql.migrate import drop, migrate
from sql.server import answers
from stack.environment import (
    MAIN,
    Addresses,
    Environment,
    archive_folder,
    forget,
    job_spec,
    load_all,
    service_env,
    service_program,
    store,
)  # fmt: skip
from stack.errors import StackError
from stack.flink.cluster import FlinkCluster
from stack.health import await_healthy
from stack.home import Home
from stack.job_keeper import KEEPER
from stack.jobs.control import JobControl
from stack.jobs.spec import find_jobs
from stack.kafka import broker
from stack.listening_ports import Ports
from stack.orphans import Orphan, find_processes, stop_processes
from stack.postgres import server
from stack.program import Program, inherited_env
from stack.progress import say, step
from stack.services import FIRST_TO_STOP
from stack.settings import REPOSITORY, StackSettings, load_settings
from stack.supervision import Supervisor
from stack.topics import drop_topics, ensure_topics

KAFKA, POSTGRES, FLINK = "kafka", "postgres", "flink"
ALL_PARTS = (KAFKA, POSTGRES, FLINK)
_POLL_S = 0.1


class EmbeddedStack:
    """One home's stack. Every method may be called from any process; the home's lock orders them."""

    def __init__(self, settings: StackSettings | None = None) -> None:
        self.settings = settings or load_settings()
        self.home = Home(self.settings.home)
        self.ports = Ports(self.home.ports_file)
        self.supervisor = Supervisor(self.home)
        self.broker = broker.Broker(self.home, self.settings, self.ports)
        self.postgres = server.PostgresServer(self.home, self.settings, self.ports)
        self.flink = FlinkCluster(self.home, self.settings, self.ports)

    # --- where things are

    @property
    def kafka(self) -> str:
        """Bootstrap servers."""
        return self.settings.kafka or self.broker.bootstrap_servers

    @property
    def postgres_dsn(self) -> str:
        return self.settings.postgres_dsn or self.postgres.dsn

    @property
    def flink_rest_url(self) -> str:
        return self.flink.rest_url

    @property
    def jobs(self) -> JobControl:
        return JobControl(self.home, self.flink_rest_url)

    def api_url(self, environment: str = MAIN) -> str:
        return f"http://127.0.0.1:{self.ports.get(f'{environment}_api')}"

    # --- the shared parts

    def up(self, parts: Iterable[str] = ALL_PARTS) -> None:
        """Bring Kafka, Postgres and Flink (or some of them) up, whatever a previous run left. Idempotent."""
        wanted = tuple(parts)
        with self.home.locked():
            self._ensure_supervisor()
            with step(f"starting {', '.join(wanted)}"):
                waits = [wait for part in wanted for wait in self._start_part(part)]
                for programs, is_ready in waits:
                    self._await_ready(programs, is_ready)
            if POSTGRES in wanted and self.settings.postgres_dsn is None:
                self.postgres.ensure_database()
            if FLINK in wanted:
                self._run(self._keeper_program())

    def down(self) -> None:
        """Stop everything in order: feeds, jobs with a savepoint, services, Flink, Postgres, Kafka."""
        with self.home.locked():
            alive = self.supervisor.is_alive()
            if alive:
                self._stop_services(first=True)
            self._stop_jobs()
            if alive:
                self._stop_services(first=False)
                for name in (KEEPER, *(program.name for program in reversed(self.flink.programs()))):
                    self.supervisor.stop(name)
                for name in (server.NAME, broker.NAME):
                    with step(f"stopping {name}"):
                        self.supervisor.stop(name)
                self.supervisor.shut_down()
            stop_processes(self._left_behind())

    def destroy(self) -> None:
        """End everything at once and delete the home: for stacks that only a test or a benchmark needed."""
        with self.home.locked():
            if self.supervisor.is_alive():
                self.supervisor.shut_down()
            stop_processes(self._left_behind(), term_wait_s=2.0)
        for folder in (self.postgres.folder, self.home.socket_folder, self.home.root):
            shutil.rmtree(folder, ignore_errors=True)

    # --- environments

    def create_environment(self, environment: Environment) -> list[str]:
        """Migrate, make topics, start services and jobs. Returns what this checkout doesn't have yet."""
        with self.home.locked():
            migrate(self.postgres_dsn, environment.schema)
            ensure_topics(self.kafka, environment.topic_prefix)
            store(environment, self.home)
            env = self._environment_env(environment)
            for service in environment.find_services():
                if service.exists:
                    self._run(service_program(environment, service, env, self.home))
            for job in environment.find_jobs():
                if job.exists:
                    self.jobs.put(job_spec(environment, job, env))
            absent = [service.name for service in environment.find_services() if not service.exists]
            return absent + [job.name for job in environment.find_jobs() if not job.exists]

    def await_environment(self, environment: Environment, timeout_s: float | None = None) -> None:
        """Wait until its jobs run and its services are healthy."""
        timeout_s = timeout_s or self.settings.start_timeout_s
        for job in environment.find_jobs():
            if job.exists:
                self.jobs.wait_running(f"{environment.name}-{job.name}", timeout_s)
        names = [environment.program_name(service.name) for service in environment.find_services() if service.exists]
        await_healthy(self.home, self.supervisor, names, timeout_s)

    def remove_environment(self, name: str, *, drop_data: bool = True) -> None:
        """Stop and forget its programs and jobs; with `drop_data` also its topics and schema."""
        with self.home.locked():
            found = [environment for environment in load_all(self.home) if environment.name == name]
            for environment in found:
                for service in environment.find_services():
                    self.supervisor.remove(environment.program_name(service.name))
            for folder in find_jobs(self.home, name):
                self.jobs.remove(folder.full_name)
            for environment in found:
                if drop_data:
                    drop_topics(self.kafka, environment.topic_prefix)
                    drop(self.postgres_dsn, environment.schema)
                    shutil.rmtree(archive_folder(name, self.home), ignore_errors=True)
            self.ports.forget(f"{name}_api")
            forget(name, self.home)

    def environments(self) -> list[Environment]:
        return load_all(self.home)

    # --- any program of a caller, beside the table

    def add_program(self, program: Program) -> None:
        """Supervise one more process: a load generator, a receiver."""
        with self.home.locked():
            self._run(program)

    def remove_program(self, name: str) -> None:
        with self.home.locked():
            self.supervisor.remove(name)

    # --- inner steps

    def _ensure_supervisor(self) -> None:
        if self.supervisor.is_alive():
            return
        orphans = self._left_behind()
        if orphans:
            names = ", ".join(sorted({orphan.program for orphan in orphans}))
            with step(f"stopping what an earlier run left behind ({names})"):
                stop_processes(orphans)
        # sections of programs that ran then; each part writes its own again
        for section in self.home.programs.glob("*.conf"):
            section.unlink()
        self.supervisor.start()

    def _left_behind(self) -> list[Orphan]:
        return find_processes(self.home, (self.postgres.folder,))

    def _start_part(self, part: str) -> list[tuple[tuple[Program, ...], Callable[[], bool]]]:
        """Start one part unless it runs, and say how to see that it is ready."""
        if part == KAFKA:
            if self.settings.kafka is not None:
                return [((), lambda: broker.answers(self.kafka))]
            self._launch(broker.NAME, self.broker.choose_ports, self.broker.prepare, lambda: (self.broker.program(),))
            return [((self.broker.program(),), self.broker.is_ready)]
        if part == POSTGRES:
            if self.settings.postgres_dsn is not None:
                return [((), lambda: answers(self.postgres_dsn))]
            postgres = self.postgres
            self._launch(server.NAME, postgres.choose_ports, postgres.prepare, lambda: (postgres.program(),))
            return [((postgres.program(),), postgres.is_ready)]
        if part == FLINK:
            flink = self.flink
            self._launch(flink.programs()[0].name, flink.choose_ports, flink.prepare, flink.programs)
            return [(flink.programs(), flink.is_ready)]
        raise StackError(f"there is no part {part}", remedy=f"known are {', '.join(ALL_PARTS)}")

    def _launch(
        self, name: str, choose_ports: Callable[[], list[str]], prepare: Callable[[], None],
        programs: Callable[[], tuple[Program, ...]],
    ) -> None:  # fmt: skip
        state = self.supervisor.states().get(name)
        if state is None or not state.is_up:
            for note in choose_ports():
                say(note)
            prepare()
        for program in programs():
            self._run(program)

    def _run(self, program: Program) -> None:
        self.supervisor.add(program)
        self.supervisor.start_program(program.name)

    def _await_ready(self, programs: tuple[Program, ...], is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.settings.start_timeout_s
        while not is_ready():
            for program in programs:
                self.supervisor.check_starting(program)
            if time.monotonic() > deadline:
                names = ", ".join(program.name for program in programs) or "an external part"
                raise StackError(
                    f"{names} did not answer within {self.settings.start_timeout_s:.0f} s",
                    where=str(self.home.logs), remedy="look into its log or raise ALERTS_START_TIMEOUT_S",
                )  # fmt: skip
            time.sleep(_POLL_S)

    def _keeper_program(self) -> Program:
        return Program(
            name=KEEPER,
            command=(sys.executable, "-m", "stack.job_keeper", str(self.home.root), self.flink_rest_url),
            directory=self.home.root,
            env={**inherited_env(), "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
            priority=300,
            # a submission under way is finished, so that its outcome is known
            stop_wait_s=200,
            writes_health=True,
        )

    def _environment_env(self, environment: Environment) -> dict[str, str]:
        running = self.supervisor.states().get(environment.program_name("api"))
        if running is not None and running.is_up:
            port = self.ports.get(environment.port_name)
        else:
            pinned = self.settings.api_port if environment.name == MAIN else None
            port, note = self.ports.choose(environment.port_name, pinned=pinned)
            if note:
                say(note)
        addresses = Addresses(self.kafka, self.postgres_dsn, self.flink_rest_url)
        archive = archive_folder(environment.name, self.home)
        env = service_env(environment, addresses, port, self.settings.log_level, archive)
        # without a key of the operator's, secrets at rest are sealed under one that the home keeps
        return {"ALERTS_SECRET_KEY": self.home.secret_key(), **env}

    def _stop_services(self, *, first: bool) -> None:
        present = self.supervisor.states()
        for environment in load_all(self.home):
            services = sorted(environment.find_services(), key=lambda service: -service.priority)
            for service in services:
                name = environment.program_name(service.name)
                if (service.name in FIRST_TO_STOP) == first and name in present:
                    with step(f"stopping {name}"):
                        self.supervisor.stop(name)

    def _stop_jobs(self) -> None:
        """Each with a savepoint; one that cannot be had is said, its checkpoints remain."""
        for folder in find_jobs(self.home):
            try:
                with step(f"stopping {folder.full_name} with a savepoint"):
                    self.jobs.stop_with_savepoint(folder.full_name)
            except StackError as error:
                say(f"warning: {error}")
