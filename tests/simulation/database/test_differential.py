"""The same drawn operations on Postgres and in memory: every result and every row must be the same.

`ALERTS_TEST_DATABASE_SEEDS=500` runs more seeds than the usual ones.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from sql.connection import Pool
from tests.simulation.database.adapters import TABLES, MemoryAdapter, PostgresAdapter
from tests.simulation.database.drawn_operations import WEIGHTS, Draw
from tests.simulation.database.player import Player

SEEDS = int(os.environ.get("ALERTS_TEST_DATABASE_SEEDS", "20"))
OPERATIONS = 250
REACHED: Counter[str] = Counter()


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_memory_does_what_postgres_does(seed: int, suite_pool: Pool) -> None:
    memory = MemoryAdapter()
    players = [Player(PostgresAdapter(suite_pool)), Player(memory)]
    for player in players:
        for name in ("bob", "cid"):
            player.world.add_owner(name, 12)
    draw = Draw(seed, memory.database)
    try:
        for step in range(OPERATIONS):
            operation = draw.operation()
            real, simulated = (player.play(*operation) for player in players)
            assert simulated == real, f"seed {seed}, step {step}: {operation}"
            REACHED[operation[0]] += 1
            if isinstance(real, tuple):
                REACHED[real[0]] += 1
    finally:
        for player in players:
            player.close()
    for table in TABLES:
        real, simulated = (player.adapter.rows(table) for player in players)
        assert simulated == real, f"seed {seed}: {table}"
    for row in players[0].adapter.rows("alerts"):
        REACHED[row["status"]] += 1
    for row in players[0].adapter.rows("deliveries"):
        REACHED[row["status"]] += 1


@pytest.mark.parametrize(
    "what",
    [
        *WEIGHTS, "PositionsMovedError", "FencedError", "LeaseLostError", "IdempotencyKeyTakenError",
        "DeclaredOtherwiseError", "LiveAlertsError", "PENDING", "ACTIVE", "PAUSED", "TRIGGERED", "CANCELLED", "EXPIRED",
        "SENDING", "DELIVERED", "DEAD",
    ],
)  # fmt: skip
def test_the_operations_reach_what_they_are_about(what: str) -> None:
    assert REACHED[what] > 0
