"""The API on a real port over a real Postgres: one server a session, empty tables and new keys for each test."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import uvicorn
from psycopg.rows import dict_row

from api.admin.service import OwnerService
from api.app import make_app
from api.database import PostgresDatabase
from api.settings import ApiSettings
from ports.logging import configure_logging
from ports.memory_log import MemoryLog
from ports.secrets import new_key
from sql.connection import Row
from sql.migrate import drop, migrate
from sql.reference_store import ReferenceStore
from tests.api.settable_clock import SettableClock

NOON_MS = 1_772_366_400_000  # 2026-03-01T12:00:00Z
TABLES = "feeds, owners, shard_progress, rule_commands, triggers, deliveries, latest_prices"


@pytest.fixture(scope="session")
def session_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


@pytest.fixture
def archive_folder(session_archive: Path) -> Path:
    """The API's price archive, empty."""
    for entry in session_archive.iterdir():
        shutil.rmtree(entry)
    return session_archive


@pytest.fixture(scope="session")
def settings(postgres_server: str, session_archive: Path) -> Iterator[ApiSettings]:
    configure_logging("warning", "api")
    schema = f"test_api_{os.getpid()}"
    migrate(postgres_server, schema)
    yield ApiSettings(
        postgres_dsn=postgres_server, postgres_schema=schema, secret_key=new_key(), api_pool_size=8,
        archive_folder=session_archive,
    )  # fmt: skip
    drop(postgres_server, schema)


@pytest.fixture(scope="session")
def database(settings: ApiSettings) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase.open(settings)
    yield database
    database.close()


@pytest.fixture(scope="session")
def session_clock() -> SettableClock:
    return SettableClock(NOON_MS)


@pytest.fixture
def clock(session_clock: SettableClock) -> SettableClock:
    session_clock.now_ms = NOON_MS
    return session_clock


@pytest.fixture(scope="session")
def tick_log() -> MemoryLog:
    """Where posted prices go."""
    return MemoryLog({"ticks.v1": 1})


def serve(
    settings: ApiSettings, database: PostgresDatabase, clock: SettableClock, log: MemoryLog | None = None
) -> Iterator[str]:
    """Its URL, while it runs in a thread."""
    app = make_app(settings, database, clock, log and log.writer)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, ws="none"))
    listener = server.config.bind_socket()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture(scope="session")
def server_url(
    settings: ApiSettings, database: PostgresDatabase, session_clock: SettableClock, tick_log: MemoryLog
) -> Iterator[str]:
    yield from serve(settings, database, session_clock, tick_log)


@pytest.fixture(scope="session")
def looking_connection(settings: ApiSettings) -> Iterator[psycopg.Connection[Row]]:
    with psycopg.connect(
        settings.postgres_dsn,
        autocommit=True,
        row_factory=dict_row,
        options=f"-c search_path={settings.postgres_schema}",
    ) as connection:
        yield connection


@pytest.fixture
def sql(looking_connection: psycopg.Connection[Row]) -> Callable[..., list[Row]]:
    """Looks into the tables, and plays the finalizer. Empties them first."""
    looking_connection.execute(f"TRUNCATE {TABLES} CASCADE")

    def run(statement: str, *parameters: Any) -> list[Row]:
        cursor = looking_connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture
def reference(database: PostgresDatabase, sql: Callable[..., list[Row]]) -> ReferenceStore:
    """A live feed of stocks, a replay feed of coins, and some instruments."""
    store = ReferenceStore(database.pool)
    store.create_feed("stocks", 4, "live")
    store.create_feed("coins", 2, "replay")
    for symbol in ("AAPL", "BRK.B", "VOD.L"):
        store.add_instrument(symbol, "stocks", 2)
    store.add_instrument("BTC", "coins", 8)
    return store


@pytest.fixture
def api(server_url: str, reference: ReferenceStore, clock: SettableClock) -> Iterator[httpx.Client]:
    """A client without a key."""
    with httpx.Client(base_url=server_url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def owners(database: PostgresDatabase, sql: Callable[..., list[Row]]) -> OwnerService:
    return OwnerService(database)


@pytest.fixture
def make_headers(owners: OwnerService) -> Callable[..., dict[str, str]]:
    """Headers with a fresh key of a fresh owner."""

    def make(name: str, *, quota: int | None = None, admin: bool = False) -> dict[str, str]:
        owners.create(name, quota)
        key = owners.create_key(name, ["alerts", "admin"] if admin else ["alerts"], None)
        return {"Authorization": f"Bearer {key.text}"}

    return make


@pytest.fixture
def ada(make_headers: Callable[..., dict[str, str]]) -> dict[str, str]:
    return make_headers("ada")


@pytest.fixture
def bob(make_headers: Callable[..., dict[str, str]]) -> dict[str, str]:
    return make_headers("bob")


@pytest.fixture
def admin(make_headers: Callable[..., dict[str, str]]) -> dict[str, str]:
    return make_headers("root", admin=True)


@pytest.fixture
def gain() -> dict[str, Any]:
    """A valid request."""
    return {"kind": "change", "symbol": "AAPL", "window": "1h", "direction": "UP", "threshold_bps": 500}
