"""Owners and keys, each change in one transaction."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from api.database import PostgresDatabase, PostgresTransaction
from api.keys import ApiKey, new_key
from api.ports import Row
from api.problems import ProblemError, not_found
from sql.owner_store import Owner, OwnerStore

MAX_KEYS_SHOWN = 1_000


class OwnerService:
    """Every error a ProblemError or psycopg's."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def create(self, name: str, max_live_alerts: int | None) -> Owner:
        owner = self._database.transact(lambda t: t.owners.insert(name, max_live_alerts))
        if owner is None:
            raise ProblemError("conflict", "There is an owner of this name already.")
        return owner

    def page(self, after_owner_id: int, limit: int) -> list[Owner]:
        return self._database.transact(lambda t: t.owners.page(after_owner_id, limit))

    def set_quota(self, name: str, max_live_alerts: int) -> Owner:
        def write(transaction: PostgresTransaction) -> Owner:
            store = transaction.owners
            store.set_quota(_owner(store, name).owner_id, max_live_alerts)
            return _owner(store, name)

        return self._database.transact(write)

    def create_key(self, name: str, scopes: Collection[str], expires_at: datetime | None) -> ApiKey:
        """Its text is in the answer and nowhere else."""
        key = new_key()

        def write(transaction: PostgresTransaction) -> ApiKey:
            store = transaction.owners
            store.insert_key(key.key_id, key.hash, _owner(store, name).owner_id, set(scopes), expires_at)
            return key

        return self._database.transact(write)

    def keys(self, name: str) -> list[Row]:
        def read(transaction: PostgresTransaction) -> list[Row]:
            store = transaction.owners
            return store.keys(_owner(store, name).owner_id, MAX_KEYS_SHOWN)

        return self._database.transact(read)

    def revoke_key(self, key_id: str) -> None:
        """Idempotent. Every process of the API obeys within KEY_CACHE_SECONDS."""
        if not self._database.transact(lambda t: t.owners.revoke_key(key_id)):
            raise not_found("key")


def _owner(store: OwnerStore, name: str) -> Owner:
    owner = store.find(name)
    if owner is None:
        raise not_found("owner")
    return owner
