"""What runs, how it is, and where its pages are: gathered as plain data for `status` and for tests."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import httpx
import psutil

from stack.embedded import FLINK, KAFKA, POSTGRES, EmbeddedStack
from stack.errors import StackError
from stack.files import read_json
from stack.flink.rest import FlinkRest
from stack.health import read_detail, read_health
from stack.jobs.record import read_record
from stack.jobs.spec import find_jobs
from stack.kafka import broker
from stack.lag import ARCHIVE, TopicLag, measure_lag, read_positions
from stack.postgres import server
from stack.supervision import ProgramState

FEEDS = "feeds"


@dataclass(frozen=True)
class ProcessStatus:
    name: str
    state: str
    pid: int | None
    uptime_s: int
    restarts: int
    memory_mib: float
    health: str
    log: str


@dataclass(frozen=True)
class JobStatusRow:
    name: str
    state: str
    detail: str
    job_id: str | None
    epoch: int | None
    checkpoint_age_s: float | None
    checkpoint_bytes: int | None


@dataclass(frozen=True)
class SourceStatus:
    """A feed's own source, as its gateway tells. `fault` None: it is connected, or reads its file."""

    environment: str
    feed: str
    fault: str | None
    taken: int | None
    behind_ms: int | None


@dataclass(frozen=True)
class StackStatus:
    """Everything at one moment."""

    running: bool
    processes: list[ProcessStatus]
    jobs: list[JobStatusRow]
    topics: list[TopicLag]
    sources: list[SourceStatus]
    pages: dict[str, str]
    memory_mib: float
    # None where nothing is lacking
    problem: str | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def is_well(self) -> bool:
        jobs_run = all(job.state in ("RUNNING", "FINISHED", "STOPPED") for job in self.jobs)
        return self.running and jobs_run and all(process.health in ("ok", "-") for process in self.processes)


def gather_status(stack: EmbeddedStack) -> StackStatus:
    """Never raises for a part that is down: that is what it is there to say."""
    try:
        states = list(stack.supervisor.states().values())
    except StackError as error:
        return StackStatus(False, [], [], [], [], {}, 0.0, str(error))
    probes = _probe_parts(stack, {state.name for state in states if state.is_up})
    processes = [_process_status(stack, state, probes) for state in sorted(states, key=lambda state: state.name)]
    return StackStatus(
        running=True,
        processes=processes,
        jobs=_job_rows(stack),
        topics=_topic_rows(stack, probes),
        sources=_source_rows(stack),
        pages=_pages(stack, {state.name for state in states}),
        memory_mib=round(sum(process.memory_mib for process in processes), 1),
        problem=None,
    )


def _probe_parts(stack: EmbeddedStack, up: set[str]) -> dict[str, bool]:
    """The health of infrastructure, over its own protocol."""
    probes = {}
    if broker.NAME in up:
        probes[KAFKA] = stack.broker.is_ready()
    if server.NAME in up:
        probes[POSTGRES] = stack.postgres.is_ready()
    for program in stack.flink.programs():
        if program.name in up:
            probes[program.name] = stack.flink.is_ready()
    return probes


def _process_status(stack: EmbeddedStack, state: ProgramState, probes: dict[str, bool]) -> ProcessStatus:
    home = stack.home
    now_s = time.time()
    if not state.is_up:
        health = "down"
    elif state.name in probes:
        health = "ok" if probes[state.name] else "does not answer"
    elif (home.programs / f"{state.name}.sh").is_file() and "ALERTS_HEALTH_FILE" in (
        home.programs / f"{state.name}.sh"
    ).read_text(encoding="utf-8"):
        health = read_health(home.health / f"{state.name}.json", int(now_s * 1000)).reason
    else:
        health = "-"
    return ProcessStatus(
        name=state.name,
        state=state.state,
        pid=state.pid or None,
        uptime_s=int(now_s - state.started_at_s) if state.is_up else 0,
        restarts=count_restarts(stack, state.name),
        memory_mib=round(_memory_bytes(state.pid) / 2**20, 1) if state.pid else 0.0,
        health=health,
        log=str(home.logs / f"{state.name}.log"),
    )


def count_restarts(stack: EmbeddedStack, name: str) -> int:
    """Starts beyond the first since this supervisor began, by its own log."""
    log = stack.home.logs / "supervisord.log"
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    begun = max((number for number, line in enumerate(lines) if "supervisord started with pid" in line), default=0)
    # an exit that supervisord expected, after a stop, is logged as "stopped:"
    return sum(f" exited: {name} (" in line for line in lines[begun:])


def _memory_bytes(pid: int) -> int:
    """Of the process and its children; shared pages are counted once, where the kernel tells us."""
    total = 0
    try:
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            try:
                total += member.memory_full_info().pss
            except psutil.AccessDenied:
                total += member.memory_info().rss
    except psutil.Error:
        return total
    return total


def _job_rows(stack: EmbeddedStack) -> list[JobStatusRow]:
    rows = []
    for folder in find_jobs(stack.home):
        status = read_json(folder.status_file, {"state": "UNKNOWN", "detail": ""})
        last = read_record(folder.record_file).last
        age_s = size = None
        if last is not None:
            try:
                with FlinkRest(stack.flink_rest_url) as rest:
                    checkpoint = rest.latest_checkpoint(last.job_id)
            except (httpx.HTTPError, StackError):
                checkpoint = None
            if checkpoint is not None:
                age_s, size = round(time.time() - checkpoint.completed_at_ms / 1000, 1), checkpoint.state_bytes
        rows.append(
            JobStatusRow(
                folder.full_name,
                status["state"],
                status["detail"],
                last.job_id if last else None,
                last.epoch if last else None,
                age_s,
                size,
            )
        )
    return rows


def _topic_rows(stack: EmbeddedStack, probes: dict[str, bool]) -> list[TopicLag]:
    if not (stack.settings.kafka or probes.get(KAFKA)):
        return []
    rows = []
    for environment in stack.environments():
        positions = read_positions(read_detail(stack.home.health / f"{environment.program_name(ARCHIVE)}.json"))
        prefix, schema = environment.topic_prefix, environment.schema
        rows += measure_lag(stack.kafka, stack.postgres_dsn, prefix, schema, {ARCHIVE: positions})
    return rows


def _source_rows(stack: EmbeddedStack) -> list[SourceStatus]:
    rows = []
    for environment in stack.environments():
        detail = read_detail(stack.home.health / f"{environment.program_name(FEEDS)}.json")
        for feed, told in sorted(detail.get("own_sources", {}).items()):
            row = SourceStatus(environment.name, feed, told["fault"], told.get("taken"), told.get("behind_ms"))
            rows.append(row)
    return rows


def _pages(stack: EmbeddedStack, names: set[str]) -> dict[str, str]:
    pages = {}
    if any(program.name in names for program in stack.flink.programs()):
        pages[FLINK] = stack.flink_rest_url
    for environment in stack.environments():
        if environment.program_name("api") in names:
            pages[f"{environment.name} api"] = stack.api_url(environment.name)
    return pages
