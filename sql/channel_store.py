"""An owner's channels in Postgres (api/ports.py has the contract), inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from psycopg import Connection

from sql.connection import Row
from sql.named import load_queries

QUERIES: Final = load_queries("channels")


class PostgresChannelStore:
    """ChannelStore. Rows come as dicts (the connection's row factory is dict_row)."""

    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection

    def insert(self, owner_id: int, kind: str, address: str, secret: bytes | None, max_channels: int) -> Row | None:
        QUERIES.lock_owner(self._connection, owner_id=owner_id)
        row: Row | None = QUERIES.insert_channel(
            self._connection, owner_id=owner_id, kind=kind, address=address, secret=secret, max_channels=max_channels
        )
        return row

    def find_address(self, owner_id: int, kind: str, address: str) -> int | None:
        row = QUERIES.find_channel_of_address(self._connection, owner_id=owner_id, kind=kind, address=address)
        return row["channel_id"] if row else None

    def page(self, owner_id: int, limit: int) -> list[Row]:
        return list(QUERIES.list_channels(self._connection, owner_id=owner_id, limit=limit))

    def disable(self, owner_id: int, channel_id: int) -> bool:
        return QUERIES.disable_channel(self._connection, owner_id=owner_id, channel_id=channel_id) is not None

    def missing(self, owner_id: int, channel_ids: Collection[int]) -> list[int]:
        rows = QUERIES.find_enabled_channels(self._connection, owner_id=owner_id, channel_ids=list(channel_ids))
        return sorted(set(channel_ids) - {row["channel_id"] for row in rows})
