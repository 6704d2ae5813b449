"""docs/correctness.md names files, tests and mutants: each exists, and each mutant is told there."""

from __future__ import annotations

import re
from pathlib import Path

from simulation.mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "correctness.md").read_text()
LINES = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
ROWS = [line.split("|")[1:-1] for line in LINES]


def test_every_promise_has_code_and_a_test() -> None:
    assert len(ROWS) > 20
    for promise, kept_by, fails, _ in ROWS:
        assert re.search(r"\]\(\.\./", kept_by), promise
        assert "::" in fails, promise


def test_every_file_and_test_exists() -> None:
    links = re.findall(r"\]\(\.\./([^)]+)\)", PAGE)
    assert [link for link in links if not (ROOT / link).exists()] == []
    tests = re.findall(r"`(tests/[^`:]+)::(\w+)`", PAGE)
    texts = {file: (ROOT / file).read_text() for file, _ in tests}
    assert [(file, name) for file, name in tests if f"\ndef {name}(" not in texts[file]] == []


def test_every_mutant_is_told_and_is_one() -> None:
    told = {name for *_, names in ROWS for name in re.findall(r"`([a-z-]+)`", names)}
    assert told == {mutant.name for mutant in MUTANTS}
