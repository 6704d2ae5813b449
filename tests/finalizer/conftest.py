"""The finalizer's services over real Postgres and a log in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from finalizer.consumer import Consumer
from finalizer.failpoints import survive
from ports.memory_log import MemoryLog
from sql.connection import Pool
from sql.finalizer_store import PostgresFinalizerStore
from tests.finalizer.settable_clock import SettableClock
from tests.finalizer.world import DEAD_LETTERS, SHARD_LOG, TOPIC, TRIGGERS, World


@pytest.fixture
def world(pool: Pool) -> World:
    return World(pool)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog({TOPIC: 4, DEAD_LETTERS: 1, SHARD_LOG: 4, TRIGGERS: 2})


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock(1_700_000_000_000)


@pytest.fixture
def make_consumer(pool: Pool, log: MemoryLog, clock: SettableClock) -> Callable[..., Consumer]:
    """A fresh consumer, as after a restart; `fail` makes it die at a point."""

    def make(fail: Callable[[str], None] = survive) -> Consumer:
        return Consumer(
            PostgresFinalizerStore(pool),
            log.reader(),
            log.writer(),
            clock,
            candidates=TOPIC,
            dead_letters=DEAD_LETTERS,
            fail=fail,
        )

    return make
