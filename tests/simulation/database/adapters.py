"""One environment's database behind every port of it, in Postgres and in memory: what the suite is run over."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg

from api.database import PostgresDatabase
from simulation.database.api_database import MemoryApiDatabase
from simulation.database.delivery_store import MemoryDeliveryStore
from simulation.database.engine import MemoryDatabase
from simulation.database.errors import DeadlockVictimError
from simulation.database.feed_store import MemoryFeedStore
from simulation.database.finalizer_store import MemoryFinalizerStore
from simulation.database.rebuild_store import MemoryRebuildStore
from simulation.database.reference_store import MemoryReferenceStore
from simulation.database.relay_store import MemoryRuleRelayStore, MemoryTriggerRelayStore
from simulation.database.reshard_store import MemoryReshardStore
from simulation.database.transaction import UPDATE
from sql.connection import Pool, transaction
from sql.delivery_store import PostgresDeliveryStore
from sql.feed_store import PostgresFeedStore
from sql.finalizer_store import PostgresFinalizerStore
from sql.rebuild_store import PostgresRebuildStore
from sql.reference_store import ReferenceStore
from sql.relay_store import PostgresRuleRelayStore, PostgresTriggerRelayStore
from sql.reshard_store import PostgresReshardStore
from tests.finalizer.settable_clock import SettableClock
from tests.simulation.database.stages import GreenletStage, Hold, ThreadStage

TABLES = (
    "feeds", "instruments", "splits", "feed_controls", "owners", "channels", "alerts", "idempotency_keys",
    "rule_commands", "shard_relays", "reshards", "routing_marks", "parked_claims", "rebuilds", "consumer_positions",
    "shard_progress", "triggers", "deliveries",
)  # fmt: skip
KEYS = {
    "feeds": "feed", "instruments": "symbol", "owners": "owner_id", "channels": "channel_id", "alerts": "alert_id",
    "shard_relays": "shard", "shard_progress": "shard", "triggers": "trigger_id",
}  # fmt: skip
GIVEN_TIMES = ("next_attempt_at", "delivered_at")  # by the caller; all other stamps are only set or not
NOON_MS = 1_772_366_400_000


class PostgresAdapter:
    """Over a migrated schema that is emptied first."""

    deadlock = psycopg.errors.DeadlockDetected

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.clock = SettableClock(NOON_MS)
        self._run(f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY CASCADE")
        self.api = PostgresDatabase(pool)
        self.stage = ThreadStage(pool)

    def _run(self, statement: str) -> list[dict[str, Any]]:
        with self.pool.connection() as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def finalizer(self) -> PostgresFinalizerStore:
        return PostgresFinalizerStore(self.pool)

    def rule_relay(self) -> PostgresRuleRelayStore:
        return PostgresRuleRelayStore(self.pool)

    def trigger_relay(self) -> PostgresTriggerRelayStore:
        return PostgresTriggerRelayStore(self.pool)

    def deliveries(self) -> PostgresDeliveryStore:
        return PostgresDeliveryStore(self.pool)

    def feeds(self) -> PostgresFeedStore:
        return PostgresFeedStore(self.pool)

    def reference(self) -> ReferenceStore:
        return ReferenceStore(self.pool)

    def reshards(self) -> PostgresReshardStore:
        return PostgresReshardStore(self.pool)

    def rebuilds(self) -> PostgresRebuildStore:
        return PostgresRebuildStore(self.pool)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return normal(self._run(f"SELECT * FROM {table}"))

    def break_leader(self, relay: PostgresRuleRelayStore) -> None:
        """The server ends the leading session, as when its connection is cut."""
        assert relay._leading is not None
        self._run(f"SELECT pg_terminate_backend({relay._leading.info.backend_pid}, 10000)")

    def hold_row(self, table: str, key: object, hold: Hold) -> None:
        """Lock a row FOR UPDATE, hold, and let it go."""
        with transaction(self.pool) as connection:
            connection.execute(f"SELECT 1 FROM {table} WHERE {KEYS[table]} = %s FOR UPDATE", (key,))
            hold()

    def route_slowly(self, reshard_id: int, hold: Hold) -> None:
        """ReshardWork.route_creates, held before its commit."""
        with self.reshards().hold(reshard_id) as work:
            assert work is not None
            work.route_creates()
            hold()


class MemoryAdapter:
    """Over a database of its own."""

    deadlock = DeadlockVictimError

    def __init__(self) -> None:
        self.clock = SettableClock(NOON_MS)
        self.stage = GreenletStage()
        self.database = MemoryDatabase(self.clock, self.stage)
        self.api = MemoryApiDatabase(self.database)

    def finalizer(self) -> MemoryFinalizerStore:
        return MemoryFinalizerStore(self.database)

    def rule_relay(self) -> MemoryRuleRelayStore:
        return MemoryRuleRelayStore(self.database)

    def trigger_relay(self) -> MemoryTriggerRelayStore:
        return MemoryTriggerRelayStore(self.database)

    def deliveries(self) -> MemoryDeliveryStore:
        return MemoryDeliveryStore(self.database)

    def feeds(self) -> MemoryFeedStore:
        return MemoryFeedStore(self.database)

    def reference(self) -> MemoryReferenceStore:
        return MemoryReferenceStore(self.database)

    def reshards(self) -> MemoryReshardStore:
        return MemoryReshardStore(self.database)

    def rebuilds(self) -> MemoryRebuildStore:
        return MemoryRebuildStore(self.database)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return normal(self.database.rows(table))

    def break_leader(self, relay: MemoryRuleRelayStore) -> None:
        relay.break_session()

    def hold_row(self, table: str, key: object, hold: Hold) -> None:
        with self.database.transaction() as tx:
            tx.statement("hold_row")
            tx.lock(self.database.tables()[table].primary.records[key], UPDATE)
            hold()

    def route_slowly(self, reshard_id: int, hold: Hold) -> None:
        with self.reshards().hold(reshard_id) as work:
            assert work is not None
            work.route_creates()
            hold()


Adapter = PostgresAdapter | MemoryAdapter


def normal(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as either adapter gives them: sorted, stamps as set or not, trigger ids without theirs."""
    found = [{name: _normal_value(name, value) for name, value in row.items()} for row in rows]
    return sorted(found, key=lambda row: [(value is not None, str(value)) for value in row.values()])


def _normal_value(name: str, value: Any) -> Any:
    if name in GIVEN_TIMES and value is not None:
        return round(value.timestamp() * 1000) if isinstance(value, datetime) else value
    if name.endswith("_at") and value is not None:
        return "set"
    return without_stamp(value)


def without_stamp(value: Any) -> Any:
    """With trigger ids cut to the alert that they name, wherever they are."""
    if isinstance(value, str):
        return re.sub(r"^(trg_[0-9]+)_[0-9a-f]+$", r"\1", value)
    if isinstance(value, dict):
        return {name: without_stamp(item) for name, item in value.items()}
    return [without_stamp(item) for item in value] if isinstance(value, list) else value


def as_ms(time: datetime | None) -> int | None:
    return None if time is None else round(time.astimezone(UTC).timestamp() * 1000)


Work = Callable[[Hold], Any]
