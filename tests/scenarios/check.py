"""Seeds through an engine, against the oracle asked anew: `python -m tests.scenarios.check --seeds 500`.

Says each difference and ends with one line; exit code 1 when there was one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from stack.replay.core_engine import replay_in_process
from stack.replay.scenario import read_scenario
from stack.replay.stack_engine import replay_through_stack
from tests.scenarios.answers import CASES, answers, differences, expected_of_case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--engine", choices=("core", "stack"), default="core")
    parser.add_argument("--cases", action="store_true", help="the handed cases too")
    parser.add_argument("--alerts", default="120")
    parser.add_argument("--minutes", default="90")
    arguments = parser.parse_args()
    options = ("--alerts", arguments.alerts, "--minutes", arguments.minutes)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        asked = ((path, rows) for _, path, rows in answers(seeds, Path(folder), *options))
        cases = ((case, expected_of_case(case)) for case in CASES) if arguments.cases else ()
        pairs = [*cases, *asked] if arguments.engine == "stack" else (pair for part in (cases, asked) for pair in part)
        compared, wrong = _compare(pairs, arguments.engine)
    print(f"{compared} scenarios, {wrong} differ from the oracle, {time.monotonic() - started:.0f} s")  # noqa: T201
    return 1 if wrong else 0


def _compare(pairs, engine: str) -> tuple[int, int]:
    compared = wrong = 0
    if engine == "stack":
        scenarios = [read_scenario(path) for path, _ in pairs]
        results = zip(pairs, replay_through_stack(scenarios), strict=True)
    else:
        results = ((pair, replay_in_process(read_scenario(pair[0]))) for pair in pairs)
    for (path, expected), actual in results:
        compared += 1
        found = differences(expected, actual)
        if found:
            wrong += 1
            print(f"{path.stem}:\n  " + "\n  ".join(found), flush=True)  # noqa: T201
    return compared, wrong


if __name__ == "__main__":
    sys.exit(main())
