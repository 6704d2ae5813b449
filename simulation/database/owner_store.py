"""Owners and quotas in memory: what of sql/queries/owners.sql a simulation asks."""

from __future__ import annotations

from datetime import datetime

from simulation.database.alert_store import as_time
from simulation.database.engine import MemoryDatabase
from simulation.database.table import Row
from simulation.database.transaction import Transaction
from sql.owner_store import Owner


class MemoryOwnerStore:
    """sql.owner_store.OwnerStore without its keys."""

    def __init__(self, database: MemoryDatabase, tx: Transaction) -> None:
        self._database, self._tx = database, tx

    def insert(self, name: str, max_live_alerts: int | None) -> Owner | None:
        """A new owner with this quota (None: the default); None when the name is taken."""
        tx, table = self._tx, self._database.owners
        tx.statement("insert_owner")
        values = {"name": name} if max_live_alerts is None else {"name": name, "max_live_alerts": max_live_alerts}
        row = table.complete(values, tx.now_ms)
        if tx.conflicting(table, ("name",), row) is not None:
            return None
        return _owner(tx.insert_row(table, row))

    def find(self, name: str) -> Owner | None:
        self._tx.statement("find_owner")
        record = self._database.owners.keys[1].records.get(name)
        row = None if record is None else self._tx.see(record)
        return None if row is None else _owner(row)

    def set_quota(self, owner_id: int, max_live_alerts: int) -> None:
        """Alerts beyond a lowered quota stay; new ones wait until there is room."""
        self._tx.statement("set_quota")
        record = self._database.owners.primary.records.get(owner_id)
        if record is not None and self._tx.take(record, lambda row: True) is not None:
            self._tx.update(record, {"max_live_alerts": max_live_alerts})


def _owner(row: Row) -> Owner:
    created_at = as_time(row["created_at"])
    assert isinstance(created_at, datetime)
    return Owner(row["owner_id"], row["name"], row["max_live_alerts"], row["live_alerts"], created_at)
