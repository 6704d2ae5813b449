"""What the check of an alert's evidence reads of Postgres. Every method is the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import Connection

from sql.connection import Row
from sql.named import load_queries

QUERIES: Final = load_queries("evidence")


@dataclass(frozen=True, slots=True)
class EvidenceContext:
    """Where the symbol's prices are kept, and when the trigger was published and first delivered (wall clock)."""

    feed: str
    buckets: int
    published_at_ms: int | None
    delivered_at_ms: int | None


class EvidenceStore:
    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection

    def context(self, owner_id: int, alert_id: int) -> EvidenceContext | None:
        """None: the owner has no alert of this id that has triggered."""
        row = QUERIES.find_context(self._connection, owner_id=owner_id, alert_id=alert_id)
        return EvidenceContext(**row) if row else None

    def splits(self, symbol: str) -> Sequence[tuple[int, int, int]]:
        """(effective from in ms, new shares, old shares), oldest first."""
        rows = QUERIES.list_splits(self._connection, symbol=symbol)
        return [(row["effective_from_ms"], row["new_shares"], row["old_shares"]) for row in rows]
