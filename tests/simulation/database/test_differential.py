"""The same drawn operations on Postgres and in memory: every result and every row must be the same.

`ALERTS_TEST_DATABASE_SEEDS=500` runs more seeds than the usual ones.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from sql.connection import Pool
from tests.simulation.database.adapters import TABLES, MemoryAdapter, PostgresAdapter
from tests.simulation.database.drawn_operations import WEIGHTS, Draw
from tests.simulation.database.player import Player

USUAL_SEEDS = 20
SEEDS = int(os.environ.get("ALERTS_TEST_DATABASE_SEEDS", str(USUAL_SEEDS)))
OPERATIONS = 250
FLOOR = 5  # how often each outcome comes at least
OUTCOMES = {
    *WEIGHTS, "PositionsMovedError", "FencedError", "LeaseLostError", "IdempotencyKeyTakenError",
    "DeclaredOtherwiseError", "ProtocolUnderWayError", "UnknownFeedError", "UnknownInstrumentError", "ConstraintError",
    "ZeroDivisionError", "PENDING", "ACTIVE", "PAUSED", "TRIGGERED", "CANCELLED", "EXPIRED", "SENDING", "DELIVERED",
    "DEAD",
}  # fmt: skip


def play(seed: int, memory: MemoryAdapter, *players: Player) -> Iterator[tuple[tuple[Any, ...], list[Any]]]:
    """Each operation with what every player makes of it."""
    for player in players:
        for name in ("bob", "cid"):
            player.world.add_owner(name, 12)
    draw = Draw(seed, memory.database)
    for _ in range(OPERATIONS):
        operation = draw.operation()
        yield operation, [player.play(*operation) for player in players]


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_memory_does_what_postgres_does(seed: int, suite_pool: Pool) -> None:
    memory = MemoryAdapter()
    with closing(Player(PostgresAdapter(suite_pool))) as real, closing(Player(memory)) as simulated:
        for step, (operation, (wanted, found)) in enumerate(play(seed, memory, real, simulated)):
            assert found == wanted, f"seed {seed}, step {step}: {operation}"
        for table in TABLES:
            assert simulated.adapter.rows(table) == real.adapter.rows(table), f"seed {seed}: {table}"


def test_the_operations_reach_what_they_are_about() -> None:
    reached: Counter[str] = Counter()
    for seed in range(1, USUAL_SEEDS + 1):
        memory = MemoryAdapter()
        for operation, (found,) in play(seed, memory, Player(memory)):
            reached[operation[0]] += 1
            reached[found if isinstance(found, str) else found[0] if isinstance(found, tuple) else ""] += 1
        for table in ("alerts", "deliveries"):
            reached.update(row["status"] for row in memory.rows(table))
    assert {what for what in OUTCOMES if reached[what] < FLOOR} == set(), reached
