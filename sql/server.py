"""What the stack asks of a Postgres server itself, outside any environment's pool."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import sql

PROBE_TIMEOUT_SECONDS: Final = 2


def answers(dsn: str) -> bool:
    """Whether the database answers a query."""
    try:
        with psycopg.connect(dsn, connect_timeout=PROBE_TIMEOUT_SECONDS, autocommit=True) as connection:
            connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def ensure_database(dsn: str, name: str) -> None:
    """Make the database unless it is there. Raises psycopg.Error."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def read_consumer_positions(dsn: str, schema: str) -> list[tuple[str, int, int]]:
    """(topic, partition, next offset) of every reader that keeps its positions here; empty where nothing answers."""
    table = sql.Identifier(schema, "consumer_positions")
    try:
        with psycopg.connect(dsn, autocommit=True, connect_timeout=PROBE_TIMEOUT_SECONDS) as connection:
            return connection.execute(sql.SQL("SELECT topic, partition, next_offset FROM {}").format(table)).fetchall()
    except psycopg.Error:
        return []


def settle(dsn: str, schema: str) -> None:
    """Leave no housekeeping of a bulk load to what is measured next: vacuum, statistics, checkpoint."""
    with psycopg.connect(dsn, autocommit=True, options=f"-c search_path={schema}") as connection:
        for table in ("alerts", "owners", "instruments"):
            connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(schema, table)))
        connection.execute("CHECKPOINT")
