"""Connections to one environment's schema: the pool that every store takes, and one transaction of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from sql.migrate import SCHEMA_NAME, SchemaNameError

CONNECT_TIMEOUT_SECONDS: Final = 10
STATEMENT_TIMEOUT_MS: Final = 30_000
LOCK_TIMEOUT_MS: Final = 10_000
IDLE_IN_TRANSACTION_TIMEOUT_MS: Final = 200_000  # above the log's delivery timeout: the trigger relay waits for it

# A server that vanished without a word (a cut network, a machine switched off) is noticed within about 25 s, idle or
# not: without these a service waits for the kernel's two hours.
KEEPALIVE_IDLE_SECONDS: Final = 10
KEEPALIVE_INTERVAL_SECONDS: Final = 5
KEEPALIVE_PROBES: Final = 3
TCP_USER_TIMEOUT_MS: Final = 25_000  # sent and not acknowledged

LINE_SETTINGS: Final = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": KEEPALIVE_IDLE_SECONDS,
    "keepalives_interval": KEEPALIVE_INTERVAL_SECONDS,
    "keepalives_count": KEEPALIVE_PROBES,
    "tcp_user_timeout": TCP_USER_TIMEOUT_MS,
}

Row = dict[str, Any]
Pool = ConnectionPool[Connection[Row]]


def open_pool(
    dsn: str,
    schema: str,
    application_name: str,
    *,
    min_size: int = 1,
    max_size: int = 4,
    statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
    max_waiting: int = 0,
    wait: bool = True,
    check: bool = True,
) -> Pool:
    """A pool whose connections see `schema` first, rows as dicts, autocommit off. The caller closes it.

    Waits for the first connection unless `wait` is off. `check` asks each connection whether it lives before handing
    it out: one round trip, for callers that don't try again themselves. `max_waiting` bounds the queue (0: no bound).
    What the dsn itself says about timeouts and keepalives stands.
    Raises psycopg.OperationalError when the database is away (PoolTimeout is one).
    """
    if not SCHEMA_NAME.fullmatch(schema):
        raise SchemaNameError(schema)
    told = conninfo_to_dict(dsn)
    given = str(told.get("options") or "")
    session = {
        "search_path": schema,
        "statement_timeout": statement_timeout_ms,
        "lock_timeout": LOCK_TIMEOUT_MS,
        "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_TIMEOUT_MS,
        "jit": "off",  # estimates over unnest are wild; compiling a batch statement costs more than running it
    }
    pool: Pool = ConnectionPool(
        dsn,
        connection_class=Connection[Row],
        kwargs={
            "autocommit": False,
            "row_factory": dict_row,
            "application_name": application_name,
            **{name: value for name, value in LINE_SETTINGS.items() if name not in told},
            "options": " ".join([given, *(f"-c {name}={value}" for name, value in session.items())]).strip(),
        },
        min_size=min_size,
        max_size=max_size,
        max_waiting=max_waiting,
        timeout=CONNECT_TIMEOUT_SECONDS,
        check=ConnectionPool.check_connection if check else None,
        name=application_name,
        open=False,
    )
    try:
        pool.open(wait=wait, timeout=CONNECT_TIMEOUT_SECONDS)
    except BaseException:
        pool.close()
        raise
    return pool


@contextmanager
def transaction(pool: Pool) -> Iterator[Connection[Row]]:
    """One transaction: committed at the end, rolled back on any error.

    An error from the commit itself leaves it unknown; every store's statements are conditional, so the caller
    reads again and goes on from there.
    """
    with pool.connection() as connection, connection.transaction():
        yield connection
