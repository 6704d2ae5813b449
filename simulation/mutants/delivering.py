"""Mutants of trigger relay and notifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from finalizer import notifier
from finalizer.channels.outcome import Delivery
from finalizer.trigger_relay import MAX_TRIGGERS_A_STEP, TriggerRelay
from simulation.database import delivery_store as store
from simulation.database import positions
from simulation.mutants.mutant import Mutant, changed, skipped


def _marked_first(right: Any) -> Any:
    """An outbox row counts as published before the log has it."""

    def step(self: Any) -> bool:
        with self._store.unpublished(MAX_TRIGGERS_A_STEP) as work:
            work.mark_published()
            triggers = list(work.triggers)
        for trigger in triggers:
            self._append(trigger)
        self._writer.flush()
        return bool(triggers)

    return step


def _unmarked(right: Any) -> Any:
    """What the log refused is forgotten: the relay does not look whether a flush failed."""

    def step(self: Any) -> bool:
        with self._store.unpublished(MAX_TRIGGERS_A_STEP) as work:
            for trigger in work.triggers:
                self._append(trigger)
            work.mark_published()
        return bool(work.triggers)

    return step


def _accepted_first(right: Any) -> Any:
    """Positions are committed before the ledger has the rows."""

    def accept(self: Any, moves: Any, deliveries: Any, now_ms: int) -> int:
        with self._database.transaction() as tx:
            positions.move_positions(self._database, tx, moves)
        with self._database.transaction() as tx:
            return store.insert_deliveries(self._database, tx, deliveries, now_ms)

    return accept


def _delivered_first(right: Any) -> Any:
    """A row is DELIVERED when it is claimed."""

    def claim(database: Any, tx: Any, *rest: Any) -> list[Delivery]:
        claimed: list[Delivery] = right(database, tx, *rest)
        for delivery in claimed:
            record = database.deliveries.primary.records[delivery.trigger_id, delivery.channel_id]
            tx.update(record, {"status": "DELIVERED"})
        return claimed

    return claim


def _any_token(right: Any) -> Any:
    """A result is recorded whoever holds the claim now, and whatever came of it."""

    def settle(database: Any, tx: Any, settled: Any, now_ms: int) -> int:
        records = database.deliveries.primary.records
        rows = [records[s.delivery.trigger_id, s.delivery.channel_id].row for s in settled]
        held = [
            replace(one, delivery=replace(one.delivery, token=row["token"]))
            for one, row in zip(settled, rows, strict=True)
        ]
        return int(right(database, _Sending(tx), held, now_ms))

    return settle


class _Sending:
    def __init__(self, tx: Any) -> None:
        self._tx = tx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def take(self, record: Any, holds: Callable[[Any], bool]) -> Any:
        return self._tx.take(record, lambda row: holds({**row, "status": "SENDING"}))


def _id_of_a_try(right: Any) -> Any:
    return property(lambda self: f"{self.trigger_id}_{self.channel_id}_{self.attempts}")


def _body_of_a_try(right: Any) -> Any:
    def claim(database: Any, tx: Any, *rest: Any) -> list[Delivery]:
        claimed: list[Delivery] = right(database, tx, *rest)
        return [replace(delivery, body=delivery.body + b" " * delivery.attempts) for delivery in claimed]

    return claim


DELIVERING: Final = (
    Mutant(
        "outbox-marked-first",
        "an outbox row counts as published before the log has it",
        changed(TriggerRelay, "step", _marked_first),
    ),
    Mutant(
        "outbox-not-flushed",
        "an outbox row counts as published without the log's acknowledgement",
        changed(TriggerRelay, "step", _unmarked),
    ),
    Mutant(
        "ledger-positions-first",
        "the notifier's positions are committed before its rows",
        changed(store.MemoryDeliveryStore, "accept", _accepted_first),
    ),
    Mutant("ledger-row-lost", "a trigger's ledger rows are not written", skipped(store, "insert_deliveries", 0)),
    Mutant(
        "delivered-before-sent",
        "DELIVERED is recorded when a row is claimed",
        changed(store, "claim_deliveries", _delivered_first),
    ),
    Mutant("claim-without-lease", "a claimed row is due again at once", changed(notifier, "LEASE_MS", lambda _: 0)),
    Mutant("settle-any-token", "a late result overwrites a newer one", changed(store, "settle_deliveries", _any_token)),
    Mutant("id-of-a-try", "each try has an id of its own", changed(Delivery, "delivery_id", _id_of_a_try)),
    Mutant("body-of-a-try", "a retry sends other bytes", changed(store, "claim_deliveries", _body_of_a_try)),
)
