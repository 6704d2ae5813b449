"""Mutants of what the API asks the database."""

from __future__ import annotations

from typing import Any, Final

from simulation.database import alert_store as store
from simulation.mutants.mutant import Mutant, Without, changed


def _any_owner(right: Any) -> Any:
    """Whoever knows the number moves the alert."""

    def move(database: Any, tx: Any, owner_id: int, alert_id: int, from_statuses: Any, **given: Any) -> Any:
        row = tx.find(database.alerts, alert_id)
        owner = owner_id if row is None else row["owner_id"]
        return right(database, tx, owner, alert_id, from_statuses, **given)

    return move


def _of_any_owner(right: Any) -> Any:
    def find(self: Any, owner_id: int, alert_id: int, clocks_ms: Any) -> Any:
        row = self._tx.find(self._database.alerts, alert_id)
        return right(self, owner_id if row is None else row["owner_id"], alert_id, clocks_ms)

    return find


def _any_status(right: Any) -> Any:
    """What has ended can be ended again."""
    everything = ("PENDING", "ACTIVE", "PAUSED", "TRIGGERED", "CANCELLED", "EXPIRED")

    def move(database: Any, tx: Any, owner_id: int, alert_id: int, from_statuses: Any, **given: Any) -> Any:
        row = tx.find(database.alerts, alert_id)
        changes = {**given["changes"], "trigger": None} if row is not None else given["changes"]
        return right(database, tx, owner_id, alert_id, everything, **{**given, "changes": changes})

    return move


def _same_version(right: Any) -> Any:
    def move(*given: Any, changes: Any, raised: int = 0) -> Any:
        return right(*given, changes=changes, raised=0)

    return move


def _key_forgotten(right: Any) -> Any:
    """A create is not remembered under its idempotency key."""
    return Without("idempotency_keys", right)


def _uncounted(right: Any) -> Any:
    """A create takes no place in the quota."""

    def insert(database: Any, tx: Any, alert: Any) -> Any:
        row = right(database, tx, alert)
        owner = database.owners.primary.records[alert.owner_id]
        tx.update(owner, {"live_alerts": max(0, tx.lock(owner, 2)["live_alerts"] - 1)})
        return row

    return insert


ASKING: Final = (
    Mutant("moved-by-anybody", "an owner cancels another's alert", changed(store, "_move", _any_owner)),
    Mutant("seen-by-anybody", "an owner sees another's alert", changed(store.MemoryAlertStore, "find", _of_any_owner)),
    Mutant("ended-again", "a cancel ends what has ended", changed(store, "_move", _any_status)),
    Mutant("resumed-under-old-version", "a resumed alert keeps its version", changed(store, "_move", _same_version)),
    Mutant("key-forgotten", "a repeated create makes another alert", changed(store, "insert_alert", _key_forgotten)),
    Mutant(
        "created-without-command",
        "the matcher never hears of a new alert",
        changed(store, "insert_alert", lambda right: Without("rule_commands", right)),
    ),
    Mutant(
        "cancelled-without-command",
        "a cancelled alert's rule stays in the index",
        changed(store, "cancel_alert", lambda right: Without("rule_commands", right)),
    ),
    Mutant(
        "paused-without-command",
        "a paused alert's rule stays in the index",
        changed(store, "pause_alert", lambda right: Without("rule_commands", right)),
    ),
    Mutant("create-uncounted", "a create takes no place in the quota", changed(store, "insert_alert", _uncounted)),
)
