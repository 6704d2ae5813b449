"""Where an owner's triggers are delivered, in memory: sql/queries/channels.sql and sql/channel_store.py."""

from __future__ import annotations

from collections.abc import Collection

from simulation.database.alert_store import as_time
from simulation.database.engine import MemoryDatabase
from simulation.database.table import Row
from simulation.database.transaction import NO_KEY_UPDATE, Transaction


class MemoryChannelStore:
    """ChannelStore."""

    def __init__(self, database: MemoryDatabase, tx: Transaction) -> None:
        self._database, self._tx = database, tx

    def insert(self, owner_id: int, kind: str, address: str, secret: bytes | None, max_channels: int) -> Row | None:
        lock_owner(self._database, self._tx, owner_id)
        values = {"owner_id": owner_id, "kind": kind, "address": address, "secret": secret}
        row = insert_channel(self._database, self._tx, values, max_channels)
        return None if row is None else _shown(row)

    def find_address(self, owner_id: int, kind: str, address: str) -> int | None:
        self._tx.statement("find_channel_of_address")
        record = self._database.channels.keys[1].records.get((owner_id, kind, address))
        row = None if record is None else self._tx.see(record)
        return row["channel_id"] if row is not None and row["disabled_at"] is None else None

    def page(self, owner_id: int, limit: int) -> list[Row]:
        self._tx.statement("list_channels")
        rows = sorted(_enabled(self._database, self._tx, owner_id), key=lambda row: int(row["channel_id"]))
        return [_shown(row) for row in rows[:limit]]

    def disable(self, owner_id: int, channel_id: int) -> bool:
        return disable_channel(self._database, self._tx, owner_id, channel_id)

    def missing(self, owner_id: int, channel_ids: Collection[int]) -> list[int]:
        self._tx.statement("find_enabled_channels")
        enabled = [row["channel_id"] for row in _enabled(self._database, self._tx, owner_id)]
        return sorted(channel_id for channel_id in set(channel_ids) if channel_id not in enabled)


def lock_owner(database: MemoryDatabase, tx: Transaction, owner_id: int) -> None:
    tx.statement("lock_owner")
    record = database.owners.primary.records.get(owner_id)
    if record is not None and tx.see(record) is not None:
        tx.lock(record, NO_KEY_UPDATE)


def insert_channel(database: MemoryDatabase, tx: Transaction, values: Row, max_channels: int) -> Row | None:
    """None: it exists and is enabled, or the owner has as many as allowed."""
    tx.statement("insert_channel")
    if len(_enabled(database, tx, values["owner_id"])) >= max_channels:
        return None
    table = database.channels
    row = table.complete(values, tx.now_ms)
    record = tx.conflicting(table, ("owner_id", "kind", "address"), row)
    if record is None:
        return tx.insert_row(table, row)
    if tx.lock(record, NO_KEY_UPDATE)["disabled_at"] is None:
        return None
    return tx.update(record, {"secret": values["secret"], "disabled_at": None})


def disable_channel(database: MemoryDatabase, tx: Transaction, owner_id: int, channel_id: int) -> bool:
    tx.statement("disable_channel")
    record = database.channels.primary.records.get(channel_id)
    row = None if record is None else tx.take(record, lambda row: row["owner_id"] == owner_id)
    if record is None or row is None:
        return False
    disabled_at = tx.now_ms if row["disabled_at"] is None else row["disabled_at"]
    tx.update(record, {"disabled_at": disabled_at, "secret": None})
    return True


def _enabled(database: MemoryDatabase, tx: Transaction, owner_id: int) -> list[Row]:
    rows = (tx.see(record) for record in database.channels.indexes["of_owner"].find(owner_id))
    return [row for row in rows if row is not None and row["disabled_at"] is None]


def _shown(row: Row) -> Row:
    shown = {name: row[name] for name in ("channel_id", "kind", "address")}
    return {**shown, "created_at": as_time(row["created_at"])}
