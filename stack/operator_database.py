"""The database that an operator's command works on: named, or the running stack's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import psycopg
import typer

from sql.connection import Pool, open_pool
from stack.embedded import EmbeddedStack
from stack.errors import StackError

Dsn = Annotated[
    str | None, typer.Option("--dsn", help="Postgres; default: ALERTS_POSTGRES_DSN, else the running stack's.")
]
Schema = Annotated[str | None, typer.Option("--schema", help="default: ALERTS_POSTGRES_SCHEMA, else `alerts`.")]


@contextmanager
def operator_pool(dsn: str | None, schema: str | None) -> Iterator[Pool]:
    """One connection. Raises StackError when the database is away, has no tables or refuses a value."""
    dsn = dsn or os.environ.get("ALERTS_POSTGRES_DSN") or EmbeddedStack().postgres_dsn
    schema = schema or os.environ.get("ALERTS_POSTGRES_SCHEMA") or "alerts"
    try:
        pool = open_pool(dsn, schema, "alerts-admin", max_size=1)
    except psycopg.OperationalError:
        raise StackError(
            "Postgres does not answer", remedy="start the stack with `./alerts up`, or name a database with --dsn"
        ) from None
    try:
        yield pool
    except psycopg.errors.UndefinedTable:
        raise StackError(
            f"schema {schema!r} has no tables", remedy="`./alerts up` makes them, or name one with --schema"
        ) from None
    except psycopg.errors.DataError as error:
        raise StackError(f"the database refuses it: {error.diag.message_primary or error}") from None
    except psycopg.errors.CheckViolation as error:
        raise StackError(f"the database refuses it: {error.diag.message_primary or error}") from None
    finally:
        pool.close()
