"""The API's database in memory: one transaction a request, tried again as api/database.py does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from simulation.database.alert_store import MemoryAlertStore
from simulation.database.channel_store import MemoryChannelStore
from simulation.database.engine import MemoryDatabase
from simulation.database.errors import DatabaseAwayError
from simulation.database.owner_store import MemoryOwnerStore
from simulation.database.transaction import Transaction

T = TypeVar("T")

ATTEMPTS: Final = 3


class MemoryTransaction:
    """api.ports.Transaction, and owners."""

    def __init__(self, database: MemoryDatabase, tx: Transaction) -> None:
        self.alerts = MemoryAlertStore(database, tx)
        self.channels = MemoryChannelStore(database, tx)
        self.owners = MemoryOwnerStore(database, tx)


class MemoryApiDatabase:
    """api.ports.Database."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    def transact(self, work: Callable[[MemoryTransaction], T]) -> T:
        for attempt in range(1, ATTEMPTS + 1):
            committing = False
            try:
                with self._database.transaction() as tx:
                    result = work(MemoryTransaction(self._database, tx))
                    committing = True
                return result
            except DatabaseAwayError:
                if attempt == ATTEMPTS or committing:
                    raise
        raise AssertionError("unreachable")
