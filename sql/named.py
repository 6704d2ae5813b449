"""Loads the named queries of `sql/queries/`; parameters are keywords, rows are dicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import aiosql

QUERIES: Final = Path(__file__).parent / "queries"


def load_queries(name: str) -> Any:
    """The queries of `sql/queries/<name>.sql` as methods that take a connection first."""
    return aiosql.from_path(QUERIES / f"{name}.sql", "psycopg", mandatory_parameters=False)
