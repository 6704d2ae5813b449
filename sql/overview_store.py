"""What the API shows about feeds, instruments and backlogs; read-only, inside the caller's transaction."""

from __future__ import annotations

from typing import Final

from psycopg import Connection

from sql.connection import Row
from sql.named import load_queries

QUERIES: Final = load_queries("overview")
BACKLOG_BOUND: Final = 100_000  # a person needs no more; counting a longer one would load the database


class OverviewStore:
    """Rows as dicts (row factory dict_row); columns as in sql/queries/overview.sql."""

    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection

    def instruments(self, after_symbol: str, prefix: str, limit: int) -> list[Row]:
        return list(QUERIES.list_instruments(self._connection, after_symbol=after_symbol, prefix=prefix, limit=limit))

    def instrument(self, spellings: list[str]) -> Row | None:
        """The first of `spellings` that is an instrument, with its latest price (None before the first)."""
        row: Row | None = QUERIES.find_shown_instrument(self._connection, spellings=spellings)
        return row

    def decimals(self, symbols: list[str]) -> dict[str, tuple[str, int]]:
        """Symbol -> (feed, decimals) of those that are instruments."""
        rows = QUERIES.read_decimals(self._connection, symbols=symbols)
        return {row["symbol"]: (row["feed"], row["decimals"]) for row in rows}

    def feeds(self) -> list[Row]:
        return list(QUERIES.read_feed_overview(self._connection))

    def backlog(self) -> Row:
        row: Row = QUERIES.read_backlog(self._connection, bound=BACKLOG_BOUND)
        return row

    def owner(self, owner_id: int) -> Row | None:
        row: Row | None = QUERIES.read_owner(self._connection, owner_id=owner_id)
        return row

    def ping(self) -> None:
        """Raises psycopg.OperationalError when the database is away."""
        QUERIES.ping(self._connection)
