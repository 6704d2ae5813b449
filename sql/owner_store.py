"""Owners, their quotas and API keys, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from psycopg import Connection

from sql.connection import Row
from sql.named import load_queries

QUERIES: Final = load_queries("owners")


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key that is neither revoked nor expired: the hash to compare with, whose it is, what it may do."""

    key_hash: bytes
    owner_id: int
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Owner:
    """One who has alerts. `live_alerts` counts PENDING, ACTIVE and PAUSED ones against `max_live_alerts`."""

    owner_id: int
    name: str
    max_live_alerts: int
    live_alerts: int
    created_at: datetime


class OwnerStore:
    """Owners and keys in one transaction."""

    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection

    def insert(self, name: str, max_live_alerts: int | None) -> Owner | None:
        """A new owner with this quota (None: the default); None when the name is taken."""
        row = QUERIES.insert_owner(self._connection, name=name, max_live_alerts=max_live_alerts)
        return Owner(**row) if row else None

    def find(self, name: str) -> Owner | None:
        row = QUERIES.find_owner(self._connection, name=name)
        return Owner(**row) if row else None

    def page(self, after_owner_id: int, limit: int) -> list[Owner]:
        rows = QUERIES.list_owners(self._connection, after_owner_id=after_owner_id, limit=limit)
        return [Owner(**row) for row in rows]

    def set_quota(self, owner_id: int, max_live_alerts: int) -> None:
        """Alerts beyond a lowered quota stay; new ones wait until there is room."""
        QUERIES.set_quota(self._connection, owner_id=owner_id, max_live_alerts=max_live_alerts)

    def insert_key(
        self, key_id: str, key_hash: bytes, owner_id: int, scopes: Collection[str], expires_at: datetime | None
    ) -> None:
        QUERIES.insert_key(
            self._connection,
            key_id=key_id,
            key_hash=key_hash,
            owner_id=owner_id,
            scopes=sorted(scopes),
            expires_at=expires_at,
        )

    def find_valid_key(self, key_id: str) -> StoredKey | None:
        """The key, unless it is unknown, revoked or expired by the database's clock."""
        row = QUERIES.find_valid_key(self._connection, key_id=key_id)
        return StoredKey(bytes(row["key_hash"]), row["owner_id"], frozenset(row["scopes"])) if row else None

    def revoke_key(self, key_id: str) -> bool:
        """Idempotent; False when there is no such key."""
        return QUERIES.revoke_key(self._connection, key_id=key_id) is not None

    def keys(self, owner_id: int, limit: int) -> list[Row]:
        """key_id, scopes, created_at, expires_at, revoked_at."""
        return list(QUERIES.list_keys(self._connection, owner_id=owner_id, limit=limit))
