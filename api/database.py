"""One transaction per request over a pool of Postgres connections (api/ports.py has the contract)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import structlog
from psycopg import Connection, OperationalError, errors
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from api.settings import ApiSettings
from sql.alert_store import PostgresAlertStore
from sql.channel_store import PostgresChannelStore
from sql.connection import Pool, Row, open_pool
from sql.evidence_store import EvidenceStore
from sql.overview_store import OverviewStore
from sql.owner_store import OwnerStore

T = TypeVar("T")

ATTEMPTS: Final = 3
MAX_WAITING_REQUESTS: Final = 1_000
WAIT_FOR_CONNECTION_SECONDS: Final = 3.0
# Waiting again would not help, or the statement itself is the trouble.
NOT_TRIED_AGAIN: Final = (PoolTimeout, PoolClosed, TooManyRequests, errors.QueryCanceled, errors.LockNotAvailable)

log = structlog.get_logger()


class PostgresTransaction:
    """api.ports.Transaction, and what the API asks besides alerts and channels."""

    def __init__(self, connection: Connection[Row]) -> None:
        self.alerts = PostgresAlertStore(connection)
        self.channels = PostgresChannelStore(connection)
        self.owners = OwnerStore(connection)
        self.evidence = EvidenceStore(connection)
        self.overview = OverviewStore(connection)


class PostgresDatabase:
    """api.ports.Database. Threads share it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @classmethod
    def open(cls, settings: ApiSettings) -> PostgresDatabase:
        """Connects in the background: a database that is away makes 503, not a failed start."""
        pool = open_pool(
            settings.postgres_dsn,
            settings.postgres_schema,
            "alerts-api",
            min_size=min(2, settings.api_pool_size),
            max_size=settings.api_pool_size,
            statement_timeout_ms=settings.api_statement_timeout_ms,
            max_waiting=MAX_WAITING_REQUESTS,
            wait=False,
            check=False,  # `transact` tries again on a dead connection
        )
        return cls(pool)

    @property
    def pool(self) -> Pool:
        """For stores that open their own transactions."""
        return self._pool

    def close(self) -> None:
        self._pool.close()

    def transact(self, work: Callable[[PostgresTransaction], T]) -> T:
        for attempt in range(1, ATTEMPTS + 1):
            committing = False
            try:
                with self._pool.connection(WAIT_FOR_CONNECTION_SECONDS) as connection:
                    result = work(PostgresTransaction(connection))
                    committing = True
                    connection.commit()
                    return result
            except OperationalError as error:
                if attempt == ATTEMPTS or committing or isinstance(error, NOT_TRIED_AGAIN):
                    raise
                log.info("transaction tried again", kind=type(error).__name__, attempt=attempt)
        raise AssertionError("unreachable")
