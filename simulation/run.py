"""A seed's world from beginning to audit, and many of them on all cores."""

from __future__ import annotations

import gc
import logging
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Final

import structlog

from simulation.audit.finding import Finding
from simulation.audit.world import audit_world
from simulation.plan import Plan
from simulation.plans import plan_of
from simulation.scheduler import StuckError
from simulation.world import World

CHUNK: Final = 20
SHOWN_STEPS: Final = 60


@dataclass(frozen=True)
class Result:
    """`digest`: of everything that happened; the same for the same plan. `last`: the end of the history."""

    seed: int
    findings: tuple[str, ...]
    turns: int
    digest: str
    reached: Counter[str]
    last: tuple[str, ...] = ()


def silence() -> None:
    """What services log is not of interest: their history is."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def play(plan: Plan) -> Result:
    """Never raises for what the world does: a fault of it is a finding."""
    world = World(plan)
    findings: list[Finding]
    try:
        world.run()
        findings = audit_world(world)
    except StuckError as error:
        findings = [Finding("liveness", str(error))]
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        findings = [Finding("crash", f"{error!r} at {where.filename.rpartition('/')[2]}:{where.lineno}")]
    finally:
        turns, reached = world.scheduler.turn, _reached(world)
        digest = _digest(world)
        world.close()
    last = [f"{turn} {who}: {what}" for turn, who, what in world.scheduler.trace[-SHOWN_STEPS:]] if findings else []
    return Result(plan.seed, tuple(map(str, findings)), turns, digest, reached, tuple(last))


def _reached(world: World) -> Counter[str]:
    reached = world.scheduler.reached + Counter(f"api:{answer}" for answer in world.clients.answers.elements())
    reached.update(f"alert:{states[-1].status}" for states in world.history.states.values() if states)
    for states in world.history.states.values():
        reached.update(f"moved:{before.status}>{after.status}" for before, after in pairwise(states))
    return reached


def _digest(world: World) -> str:
    digest = blake2b(digest_size=16)
    for turn, who, what in world.scheduler.trace:
        digest.update(f"{turn} {who} {what}\n".encode())
    for name, table in world.database.tables().items():
        digest.update(name.encode())
        for row in table.committed():
            digest.update(repr(row).encode())
    for topic in world.log.memory.topics():
        for record in world.log.memory.records(topic):
            digest.update(record.key + record.value)
    return digest.hexdigest()


def play_seeds(seeds: Iterable[int]) -> list[Result]:
    """For a worker process."""
    silence()
    gc.disable()  # a world is garbage as a whole: looking for it all the time costs a quarter
    try:
        return [play(plan_of(seed)) for seed in seeds]
    finally:
        gc.enable()
        gc.collect()


def play_all(seeds: range, processes: int | None = None) -> Iterator[Result]:
    """Results as they come, on all cores."""
    processes = processes or os.cpu_count() or 1
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    if processes == 1 or len(chunks) == 1:
        for chunk in chunks:
            yield from play_seeds(chunk)
        return
    with ProcessPoolExecutor(processes) as pool:
        for results in pool.map(play_seeds, chunks):
            yield from results


def fails_alike(findings: Iterable[str]) -> Callable[[Plan], bool]:
    """Whether a plan breaks the invariant that was found broken first."""
    invariant = next(iter(findings)).partition(":")[0]
    return lambda plan: any(finding.partition(":")[0] == invariant for finding in play(plan).findings)
