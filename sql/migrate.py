"""Brings one environment's schema to this version. Safe when several processes do it at once, and when one was killed.

yoyo keeps the list of applied migrations inside the schema itself, so environments in one database are independent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import psycopg
import yoyo
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

MIGRATIONS: Final = Path(__file__).parent / "migrations"
SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,40}", re.ASCII)
CONNECT_TIMEOUT_SECONDS: Final = 10
LOCK_TIMEOUT_SECONDS: Final = 60


class SchemaNameError(ValueError):
    """A schema name that would need quoting somewhere; `schema` is the name."""

    def __init__(self, schema: str) -> None:
        super().__init__(f"schema name {schema!r}: use a-z, 0-9, _; at most 41 characters, no digit first")
        self.schema = schema


def migrate(dsn: str, schema: str) -> None:
    """Create `schema` if it is missing and apply what it lacks; does nothing when it is up to date.

    dsn: libpq connection string or URL of a role that may create schemas. Raises SchemaNameError, psycopg.Error.
    """
    with _only_one(dsn, schema) as connection:
        if not _schema_exists(connection, schema):  # asking first spares an operator's role the CREATE privilege
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        with yoyo.get_backend(_yoyo_uri(dsn, schema)) as backend:
            backend.break_lock()  # a row left by a killed process; whoever lives is kept out by the advisory lock
            backend.apply_migrations(backend.to_apply(yoyo.read_migrations(str(MIGRATIONS))))


def drop(dsn: str, schema: str) -> None:
    """Drop the environment's schema with everything in it, if it exists."""
    with _only_one(dsn, schema) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


@contextmanager
def _only_one(dsn: str, schema: str) -> Iterator[psycopg.Connection]:
    """A connection that holds the schema's advisory lock; the server drops it with the connection."""
    if not SCHEMA_NAME.fullmatch(schema):
        raise SchemaNameError(schema)
    with psycopg.connect(dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_SECONDS) as connection:
        connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
        connection.execute("SELECT pg_advisory_lock(hashtextextended('alerts migration of ' || %s, 0))", (schema,))
        yield connection


def _schema_exists(connection: psycopg.Connection, schema: str) -> bool:
    row = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    return row is not None


def _yoyo_uri(dsn: str, schema: str) -> str:
    """yoyo understands only its own URLs: everything but the database's name goes into the query part."""
    parts = {k: str(v) for k, v in conninfo_to_dict(dsn).items() if v is not None}
    database = parts.pop("dbname", parts.get("user", ""))
    parts.setdefault("connect_timeout", str(CONNECT_TIMEOUT_SECONDS))
    return f"postgresql+psycopg:///{quote(database, safe='')}?{urlencode({**parts, 'schema': schema})}"
