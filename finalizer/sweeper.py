"""Expiry: alerts end when their shard's finalized frontier has passed them, never by a wall clock."""

from __future__ import annotations

from typing import Any, Final

from finalizer.ports import SweeperStore
from ports.clock import Clock

MAX_SHARDS_A_STEP: Final = 64
MAX_ALERTS_A_TRANSACTION: Final = 2_000


class Sweeper:
    """Service. Any number may run: a row that one holds is left alone by the others."""

    def __init__(self, store: SweeperStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._expired = 0
        self._shards_due = 0

    def step(self) -> bool:
        """One bounded transaction for each shard that is due."""
        due = self._store.shards_due(MAX_SHARDS_A_STEP)
        self._shards_due = len(due)
        expired = 0
        for shard, frontier_ms in due:
            expired += self._store.expire(shard, frontier_ms, MAX_ALERTS_A_TRANSACTION, self._clock.wall_ms())
        self._expired += expired
        return expired > 0

    def detail(self) -> dict[str, Any]:
        return {"expired": self._expired, "shards_due": self._shards_due}

    def close(self) -> None: ...
