"""Many seeds and all mutants, with progress; failures shortened and told."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import chain, count
from pathlib import Path
from typing import Final

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from simulation.faults import BATCH_FAULTS
from simulation.mutants import MUTANTS
from simulation.plan import AFFECTED, FaultKind, Role
from simulation.plans import plan_of
from simulation.run import Result, fails_alike, play, play_all, silence
from simulation.shorten import describe, shorten

CAUGHT: Final = Path(__file__).parent / "mutants" / "caught.json"
MAX_HUNT_SEEDS: Final = 2_000
SHOWN_FAILURES: Final = 3
TOLD_SECONDS: Final = 10.0
FLOOR_SEEDS: Final = 1_000  # from so many seeds on, everything below must have been reached
# What a campaign claims to test, so it must have happened. Kinds of faults are added by name.
FLOOR: Final = (
    "alert:ACTIVE", "alert:CANCELLED", "alert:EXPIRED", "alert:PAUSED", "alert:TRIGGERED",
    "moved:ACTIVE>PAUSED", "moved:PAUSED>PENDING", "moved:PENDING>EXPIRED",
    "moved:PENDING>CANCELLED", "moved:PAUSED>EXPIRED", "moved:PAUSED>CANCELLED", "moved:ACTIVE>TRIGGERED",
    "waited:db.lock",
)  # fmt: skip

# They write to the log only when a record is corrupt, and in these worlds none is.
WRITE_LETTERS_ALONE: Final = frozenset({Role.CONSUMER, Role.NOTIFIER})


class Campaign:
    """One command's work. Progress and failures go to `console`."""

    def __init__(self, seeds: range, processes: int | None, console: Console) -> None:
        self._seeds, self._processes, self._console = seeds, processes or os.cpu_count() or 1, console
        self.failed = self.turns = self.hunted = 0
        self.seconds = 0.0

    def play(self) -> Counter[str]:
        """Every seed; what was reached."""
        started = time.monotonic()
        reached: Counter[str] = Counter()
        failures: list[Result] = []
        with Advance("seeds", len(self._seeds), self._console) as advance:
            for result in play_all(self._seeds, self._processes):
                reached += result.reached
                self.turns += result.turns
                if result.findings:
                    self.failed += 1
                    failures = [*failures, result][:SHOWN_FAILURES]
                    advance.say(f"seed {result.seed}, step {result.turns}: {result.findings[0]}")
                advance.one()
        self.seconds = time.monotonic() - started
        for result in failures:
            self._tell(result)
        return reached

    def _tell(self, result: Result) -> None:
        """The shortest plan that still breaks the promise, and its history's end."""
        silence()
        short = shorten(plan_of(result.seed), fails_alike(result.findings))
        again = play(short)
        say = [f"seed {result.seed}, shortened:", *describe(short).splitlines(), *again.last, *again.findings]
        self._console.print("\n  ".join(say), markup=False, highlight=False, soft_wrap=True)

    def hunt(self) -> list[str]:
        """Break the product in each way; names of mutants that no seed found."""
        known = read_caught()
        caught: dict[str, dict[str, object]] = {}
        with (
            Advance("mutants", len(MUTANTS), self._console) as advance,
            ProcessPoolExecutor(self._processes) as pool,
        ):
            hunts = [pool.submit(hunt_one, mutant.name, known.get(mutant.name)) for mutant in MUTANTS]
            for hunt in as_completed(hunts):
                name, seed, finding = hunt.result()
                self.hunted += 1
                if seed is not None:
                    caught[name] = {"seed": seed, "finding": finding}
                    write_caught(caught)
                else:
                    advance.say(f"mutant lived: {name}")
                advance.one()
        return sorted({mutant.name for mutant in MUTANTS} - caught.keys())

    def missing(self, reached: Mapping[str, int]) -> list[str]:
        """Of what a campaign of this length must have reached."""
        if len(self._seeds) < FLOOR_SEEDS:
            return []
        faults = [
            f"fault:{kind}:{role}"
            for kind in FaultKind
            for role in AFFECTED[kind]
            if kind not in BATCH_FAULTS or role not in WRITE_LETTERS_ALONE
        ]
        return [name for name in (*FLOOR, *faults) if not reached.get(name)]


class Advance:
    """How far it is: a bar on a terminal, a line every TOLD_SECONDS elsewhere."""

    def __init__(self, what: str, total: int, console: Console) -> None:
        self._what, self._total, self._console = what, total, console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        self._done, self._started, self._told = 0, time.monotonic(), time.monotonic()

    def __enter__(self) -> Advance:
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def one(self) -> None:
        self._done += 1
        self._bar.advance(self._task)
        now = time.monotonic()
        if not self._console.is_terminal and (now - self._told >= TOLD_SECONDS or self._done == self._total):
            self._told = now
            rate = self._done / max(now - self._started, 0.001)
            left = (self._total - self._done) / rate
            self.say(f"{self._what}: {self._done} of {self._total}, {rate:.1f}/s, {left:.0f} s left")


def read_caught() -> dict[str, int]:
    """Mutant -> the seed that found it last."""
    if not CAUGHT.exists():
        return {}
    return {name: int(entry["seed"]) for name, entry in orjson.loads(CAUGHT.read_bytes()).items()}


def write_caught(caught: Mapping[str, Mapping[str, object]]) -> None:
    """At once, so that what was found stays when the hunt is cut off."""
    CAUGHT.write_bytes(orjson.dumps(caught, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")


def hunt_one(name: str, known_seed: int | None) -> tuple[str, int | None, str]:
    """For a worker process: the first seed that finds a mutant, and what it says."""
    silence()
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    step = mutant.step
    tried = 0
    for seed in chain([] if known_seed is None else [known_seed], count(step, step)):
        plan = mutant.plan_of(seed)
        if mutant.needs is not None and mutant.needs not in {(fault.kind, fault.role) for fault in plan.faults}:
            continue
        with mutant.breaks():
            findings = play(plan).findings
        if findings and not is_own_fault(findings[0]):
            return name, seed, findings[0]
        tried += 1
        if tried == MAX_HUNT_SEEDS:
            break
    return name, None, ""


def is_own_fault(finding: str) -> bool:
    """A mutant that can't even run proves nothing."""
    return finding.startswith("crash: ") and finding.removeprefix("crash: ").startswith(
        ("TypeError", "AttributeError", "KeyError", "NameError", "IndexError")
    )
