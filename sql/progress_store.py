"""How far the stack is, as its starter asks: barriers of replays, the demo's end, benchmarks. Read-only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from psycopg import Connection

from contracts.routes import SymbolRoute
from finalizer.shard_ports import Reshard
from sql.connection import Row
from sql.named import load_queries
from sql.reshard_store import reshard_of

QUERIES: Final = load_queries("progress")
RESHARDS: Final = load_queries("reshard")


@dataclass(frozen=True, slots=True)
class ShardPosition:
    """A row of shard_progress, as far as a barrier needs it."""

    shard: str
    marker_id: int
    frontier_ms: int
    swept_ms: int
    rejected: int
    duplicate: int
    late: int
    gap: str | None


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One channel of one trigger."""

    trigger_id: str
    alert_id: int
    channel_id: int
    kind: str
    address: str
    status: str
    attempts: int
    last_error: str | None

    @property
    def delivery_id(self) -> str:
        """As the notifier names it to the receiver."""
        return f"{self.trigger_id}_{self.channel_id}"


class ProgressStore:
    """Reads in the caller's transaction (row factory dict_row)."""

    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection

    def shards(self, shards: Collection[str]) -> dict[str, ShardPosition]:
        """Positions of those that have any."""
        rows = QUERIES.read_shard_progress(self._connection, shards=list(shards))
        return {row["shard"]: ShardPosition(**row) for row in rows}

    def hot_routes(self, feed: str) -> list[SymbolRoute]:
        """Symbols with shards of their own."""
        return [SymbolRoute(**row) for row in QUERIES.list_hot_routes(self._connection, feed=feed)]

    def reshards(self, feed: str) -> list[Reshard]:
        """Under way, of the feed's symbols."""
        return [reshard_of(row) for row in RESHARDS.find_open_of_feed(self._connection, feed=feed)]

    def unpublished_controls(self, feed: str) -> int:
        return int(QUERIES.count_unpublished_controls(self._connection, feed=feed)["controls"])

    def open_deliveries(self) -> tuple[int, int]:
        """(triggers without any delivery row, rows that have not ended)."""
        row = QUERIES.count_open_deliveries(self._connection)
        return int(row["without_rows"]), int(row["waiting"])

    def deliveries(self) -> list[DeliveryRow]:
        return [DeliveryRow(**row) for row in QUERIES.read_deliveries(self._connection)]
