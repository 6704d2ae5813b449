"""The oracle as a separate program: it shares no code with the product, so the product may be judged by it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stack.errors import StackError
from stack.settings import REPOSITORY

ORACLE: Final = REPOSITORY / "tests" / "scenarios" / "oracle.py"
_LAST_LINE: Final = re.compile(r"(\d+) compared, (\d+) differ")


@dataclass(frozen=True)
class Comparison:
    """`wrong` differences among `compared` alerts (and the tick counts), told in `report`."""

    compared: int
    wrong: int
    report: str


def write_answer(scenario: Path, answer: Path) -> None:
    """The oracle's result rows for a scenario file."""
    with answer.open("wb") as file:
        result = subprocess.run(
            [sys.executable, str(ORACLE), str(scenario)], stdout=file, stderr=subprocess.PIPE, check=False
        )
    if result.returncode != 0:
        last = result.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise StackError("the oracle cannot answer this scenario", where=str(scenario), remedy=last)


def compare_answers(expected: Path, actual: Path) -> Comparison:
    """Judged by the oracle's own comparison."""
    result = subprocess.run(
        [sys.executable, str(ORACLE), "--compare", str(expected), str(actual)],
        capture_output=True,
        text=True,
        check=False,
    )
    last = _LAST_LINE.search(result.stdout)
    if last is None:
        raise StackError("the oracle cannot compare", where=f"{expected}, {actual}", remedy=result.stderr[-400:])
    return Comparison(int(last[1]), int(last[2]), result.stdout.rstrip())
