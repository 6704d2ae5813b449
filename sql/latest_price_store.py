"""Latest prices in Postgres (feeds/archive/latest_prices.py has the contract)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import psycopg

from feeds.archive.latest_prices import LatestPrice
from feeds.ports import StoreAwayError
from sql.connection import Pool, open_pool, transaction
from sql.named import load_queries

QUERIES: Final = load_queries("latest_prices")


def open_latest_price_store(dsn: str, schema: str) -> PostgresLatestPriceStore:
    """Connects in the background: a database that is away delays prices, nothing else."""
    return PostgresLatestPriceStore(open_pool(dsn, schema, "archive", max_size=1, wait=False))


class PostgresLatestPriceStore:
    """LatestPriceStore. Owns its pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def write(self, prices: Sequence[LatestPrice]) -> None:
        ordered = sorted(prices)  # two writers at once take the rows in the same order
        try:
            with transaction(self._pool) as connection:
                QUERIES.commit_without_waiting(connection)
                QUERIES.write_latest_prices(
                    connection,
                    symbols=[price.symbol for price in ordered],
                    event_times_ms=[price.event_time_ms for price in ordered],
                    prices_scaled=[price.price_scaled for price in ordered],
                    log_offsets=[price.log_offset for price in ordered],
                )
        except psycopg.OperationalError as error:
            raise StoreAwayError(f"database: {error}") from error

    def close(self) -> None:
        self._pool.close()
