"""Both adapters of the database, empty; and a small world in one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest

from sql.connection import Pool, open_pool
from sql.migrate import drop, migrate
from tests.simulation.database.adapters import Adapter, MemoryAdapter, PostgresAdapter
from tests.simulation.database.world import World


@pytest.fixture(scope="session")
def suite_pool(postgres_server: str) -> Iterator[Pool]:
    """Connections to a schema that each test empties."""
    schema = f"test_suite_{os.getpid()}"
    migrate(postgres_server, schema)
    # thousands of tiny commits whose survival nobody asks about
    dsn = psycopg.conninfo.make_conninfo(postgres_server, options="-c synchronous_commit=off")
    with open_pool(dsn, schema, schema, max_size=12) as pool:
        yield pool
    drop(postgres_server, schema)


@pytest.fixture(params=["postgres", "memory"])
def adapter(request: pytest.FixtureRequest) -> Adapter:
    if request.param == "memory":
        return MemoryAdapter()
    return PostgresAdapter(request.getfixturevalue("suite_pool"))


@pytest.fixture
def world(adapter: Adapter) -> World:
    return World(adapter)
