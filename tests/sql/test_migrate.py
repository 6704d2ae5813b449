"""Migrations: idempotent, one process at a time, after a kill."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from sql.connection import open_pool
from sql.migrate import MIGRATIONS, SchemaNameError, drop, migrate


def tables(dsn: str, schema: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
    return {row[0] for row in rows}


def test_four_at_once_then_again_then_dropped(postgres_server: str, postgres_schema: str) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            migrate(postgres_server, postgres_schema)
        except BaseException as error:  # a thread's error must reach the test
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    made = tables(postgres_server, postgres_schema)
    assert {"alerts", "triggers", "rule_commands", "shard_progress"} <= made
    with psycopg.connect(postgres_server, autocommit=True) as connection:  # a process was killed while it migrated
        connection.execute(f"INSERT INTO {postgres_schema}.yoyo_lock (locked, ctime, pid) VALUES (1, now(), 1)")
    migrate(postgres_server, postgres_schema)
    assert tables(postgres_server, postgres_schema) == made
    with psycopg.connect(postgres_server) as connection:
        applied = connection.execute(f"SELECT migration_id FROM {postgres_schema}._yoyo_migration").fetchall()
    assert {row[0] for row in applied} == {path.stem for path in MIGRATIONS.glob("*.sql")}
    drop(postgres_server, postgres_schema)
    drop(postgres_server, postgres_schema)
    assert tables(postgres_server, postgres_schema) == set()


def test_environments_in_one_database_are_apart(postgres_server: str, make_schema: Callable[[], str]) -> None:
    first, second = make_schema(), make_schema()
    migrate(postgres_server, first)
    migrate(postgres_server, second)
    with open_pool(postgres_server, first, "tests") as pool, pool.connection() as connection:
        connection.execute("INSERT INTO owners (name) VALUES ('ann')")
        row = connection.execute("SELECT current_setting('application_name') AS name, current_schema AS at").fetchone()
        assert row == {"name": "tests", "at": first}
    with open_pool(postgres_server, second, "tests") as pool, pool.connection() as connection:
        assert connection.execute("SELECT count(*) AS n FROM owners").fetchone() == {"n": 0}


@pytest.mark.parametrize("schema", ["", "Upper", "a b", 'a"b', "1a", "a" * 42, "a;drop"])
def test_a_schema_name_that_needs_quoting_is_refused(schema: str) -> None:
    with pytest.raises(SchemaNameError):
        migrate("host=127.0.0.1 port=1", schema)
    with pytest.raises(SchemaNameError):
        open_pool("host=127.0.0.1 port=1", schema, "tests")
