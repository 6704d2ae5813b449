"""Owners and keys, each change in one transaction."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from psycopg import Connection

from api.database import Database
from api.keys import ApiKey, new_key
from api.problems import ProblemError, not_found
from sql.connection import Row
from sql.owner_store import Owner, OwnerStore

MAX_KEYS_SHOWN = 1_000


class OwnerService:
    """Every error a ProblemError or psycopg's."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str, max_live_alerts: int | None) -> Owner:
        owner = self._database.transact(lambda c: OwnerStore(c).insert(name, max_live_alerts))
        if owner is None:
            raise ProblemError("conflict", "There is an owner of this name already.")
        return owner

    def page(self, after_owner_id: int, limit: int) -> list[Owner]:
        return self._database.transact(lambda c: OwnerStore(c).page(after_owner_id, limit))

    def set_quota(self, name: str, max_live_alerts: int) -> Owner:
        def write(connection: Connection[Row]) -> Owner:
            store = OwnerStore(connection)
            store.set_quota(_owner(store, name).owner_id, max_live_alerts)
            return _owner(store, name)

        return self._database.transact(write)

    def create_key(self, name: str, scopes: Collection[str], expires_at: datetime | None) -> ApiKey:
        """Its text is in the answer and nowhere else."""
        key = new_key()

        def write(connection: Connection[Row]) -> ApiKey:
            store = OwnerStore(connection)
            store.insert_key(key.key_id, key.hash, _owner(store, name).owner_id, set(scopes), expires_at)
            return key

        return self._database.transact(write)

    def keys(self, name: str) -> list[Row]:
        def read(connection: Connection[Row]) -> list[Row]:
            store = OwnerStore(connection)
            return store.keys(_owner(store, name).owner_id, MAX_KEYS_SHOWN)

        return self._database.transact(read)

    def revoke_key(self, key_id: str) -> None:
        """Idempotent. Every process of the API obeys within KEY_CACHE_SECONDS."""
        if not self._database.transact(lambda c: OwnerStore(c).revoke_key(key_id)):
            raise not_found("key")


def _owner(store: OwnerStore, name: str) -> Owner:
    owner = store.find(name)
    if owner is None:
        raise not_found("owner")
    return owner
