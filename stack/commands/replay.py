"""`./alerts replay`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
import typer

from stack.errors import StackError
from stack.replay.scenario import Scenario, ScenarioError, read_scenario


class Engine(StrEnum):
    CORE = "core"
    STACK = "stack"


def command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Scenario files (tests/scenarios/README.md).")],
    engine: Annotated[
        Engine, typer.Option(help="`core`: in process. `stack`: through HTTP, Kafka, Flink and Postgres.")
    ] = Engine.CORE,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Folder for one FILE.jsonl of result rows a scenario, instead of stdout."),
    ] = None,
    buckets: Annotated[int, typer.Option(min=1, max=64, help="Buckets of each scenario's feed.")] = 4,
) -> None:
    """Play scenarios and print result rows as JSON lines, comparable by `tests/scenarios/oracle.py --compare`."""
    scenarios = [_read(path) for path in files]
    if engine is Engine.CORE:
        from stack.replay.core_engine import replay_in_process  # noqa: PLC0415

        results = [replay_in_process(scenario, buckets) for scenario in scenarios]
    else:
        from stack.replay.stack_engine import replay_through_stack  # noqa: PLC0415

        results = replay_through_stack(scenarios, buckets)
    for path, rows in zip(files, results, strict=True):
        lines = b"".join(orjson.dumps(row) + b"\n" for row in rows)
        if output is None:
            sys.stdout.buffer.write(lines)
        else:
            output.mkdir(parents=True, exist_ok=True)
            (output / f"{path.stem}.jsonl").write_bytes(lines)
    sys.stdout.flush()


def _read(path: Path) -> Scenario:
    try:
        return read_scenario(path)
    except ScenarioError as error:
        raise StackError(str(error), remedy="correct the file; tests/scenarios/README.md describes it") from None
    except OSError as error:
        raise StackError(f"the scenario cannot be read: {error.strerror}", where=str(path)) from None
