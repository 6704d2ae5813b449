"""Scenarios from seeds and the oracle's answers to them: asked for, or read from `stored/`.

python -m tests.scenarios.answers      remakes `stored/` (seeds 1 to 100, some minutes)
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import zstandard

HERE = Path(__file__).resolve().parent
CASES = sorted(path for path in (HERE / "cases").glob("*.jsonl") if not path.name.endswith(".expected.jsonl"))
STORED = HERE / "stored" / "answers.jsonl.zst"
STORED_SEEDS = range(1, 101)

Rows = list[dict[str, Any]]


def generate(seed: int, *options: str) -> bytes:
    """The random scenario of a seed, as a file's bytes."""
    return _run("generate.py", str(seed), *options)


def ask_oracle(scenario: Path) -> Rows:
    """Takes seconds for a scenario of thousands of ticks."""
    return _rows(_run("oracle.py", str(scenario)))


def expected_of_case(case: Path) -> Rows:
    return _rows(case.with_suffix(".expected.jsonl").read_bytes())


def stored_answers() -> Mapping[int, Rows]:
    """Seed -> the oracle's rows, for STORED_SEEDS."""
    text = zstandard.ZstdDecompressor().decompress(STORED.read_bytes())
    return {entry["seed"]: entry["rows"] for entry in map(json.loads, text.splitlines())}


def differences(expected: Rows, actual: Rows) -> list[str]:
    """What the oracle's own comparison would print, from its own functions."""
    from tests.scenarios import oracle

    def keyed(rows: Rows) -> dict[str, Any]:
        named = {row["id"]: row for row in rows if "id" in row}
        comparable = {name: _comparable(oracle, row) for name, row in named.items()}
        comparable["counts"] = next((row["counts"] for row in rows if "counts" in row), None)
        return comparable

    left, right = keyed(expected), keyed(actual)
    return [
        f"{name}: expected {left.get(name)}, was {right.get(name)}"
        for name in sorted(left.keys() | right.keys())
        if left.get(name) != right.get(name)
    ]


def _comparable(oracle: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("status", "event_time", "seq", "price", "reference_ts", "reference_price", "previous_bps", "current_bps")
    return {
        key: str(oracle.Decimal(row[key])) if key.endswith("price") else row[key]
        for key in keys
        if row.get(key) is not None
    }


def answers(seeds: Iterable[int], folder: Path, *options: str) -> Iterator[tuple[int, Path, Rows]]:
    """Seed, its scenario's file in `folder`, the oracle's rows; two oracles at a time."""

    def make(seed: int) -> tuple[int, Path, Rows]:
        path = folder / f"seed-{seed}.jsonl"
        path.write_bytes(generate(seed, *options))
        return seed, path, ask_oracle(path)

    with ThreadPoolExecutor(max_workers=2) as pool:
        yield from pool.map(make, seeds)


def _run(program: str, *arguments: str) -> bytes:
    return subprocess.run([sys.executable, str(HERE / program), *arguments], capture_output=True, check=True).stdout


def _rows(text: bytes) -> Rows:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def remake_stored(folder: Path) -> None:
    lines = [json.dumps({"seed": seed, "rows": rows}) for seed, _, rows in answers(STORED_SEEDS, folder)]
    STORED.parent.mkdir(exist_ok=True)
    STORED.write_bytes(zstandard.ZstdCompressor(level=19).compress("\n".join(lines).encode()))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        remake_stored(Path(temporary))
