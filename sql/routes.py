"""Where a symbol's rules are installed, read under a lock."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from psycopg import Connection

from contracts.routes import SymbolRoute
from sql.connection import Row
from sql.named import load_queries

QUERIES: Final = load_queries("finalizer")


def lock_routes(connection: Connection[Row], symbols: Collection[str]) -> dict[str, SymbolRoute]:
    """Of instruments, as they stay until the transaction ends. Take it behind every lock of an alert."""
    rows = QUERIES.lock_routes(connection, symbols=list(symbols))
    return {row["symbol"]: SymbolRoute(**row) for row in rows}
