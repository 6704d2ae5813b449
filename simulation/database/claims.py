"""Claims decided in memory: trigger_alerts, refuse_claims and the rule commands that transitions write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from contracts.frames_pb2 import Direction
from contracts.prices import format_price
from finalizer.domain.batch import Claim
from simulation.database.engine import MemoryDatabase
from simulation.database.moves import NOT_MOVING, lock_routes
from simulation.database.table import Row
from simulation.database.transaction import Transaction

FIRED: Final = {int(value): Direction.Name(value) for value in Direction.values()}


def trigger_alerts(
    database: MemoryDatabase, tx: Transaction, claims: Sequence[Claim], finalized_at_ms: int
) -> list[Row]:
    """Alerts that fired, with their evidence, outbox rows and remove commands."""
    tx.statement("trigger_alerts")
    fired = []
    for claim in claims:

        def holds(row: Row, claim: Claim = claim) -> bool:
            given = claim.candidate
            return bool(
                row["status"] == "ACTIVE"
                and row["version"] == given.version
                and row["shard"] == claim.shard
                and row["active_from_event_time_ms"] <= given.event_time_ms < row["expires_at_ms"]
            )

        record = database.alerts.primary.records.get(claim.candidate.alert_id)
        row = None if record is None else tx.take(record, holds)
        if record is not None and row is not None:
            evidence = _evidence(claim, row, finalized_at_ms)
            fired.append(tx.update(record, {"status": "TRIGGERED", "ended_at": finalized_at_ms, "trigger": evidence}))
    write_removes(database, tx, fired)
    for row in fired:
        trigger_id = f"trg_{row['alert_id']}_{row['inserted_at']:x}"
        payload = _payload(trigger_id, row, row["channel_ids"] or _enabled_channels(database, tx, row["owner_id"]))
        tx.insert(
            database.triggers,
            {
                "trigger_id": trigger_id,
                "alert_id": row["alert_id"],
                "owner_id": row["owner_id"],
                "payload": payload,
            },
        )
    return fired


def _evidence(claim: Claim, row: Row, finalized_at_ms: int) -> Row:
    given, decimals = claim.candidate, row["decimals"]
    evidence = {
        "event_time_ms": given.event_time_ms,
        "sequence": given.sequence or None,
        "session": given.session,
        "price": format_price(given.price_scaled, decimals),
        "window": row["rate_window"],
        "fired": FIRED[given.fired],
        "position": claim.position,
        "epoch": claim.epoch,
        "version": given.version,
        "active_from_event_time_ms": row["active_from_event_time_ms"],
        "finalized_at_ms": finalized_at_ms,
    }
    if row["kind"] == "change":
        evidence["reference_time_ms"] = given.reference_time_ms
        evidence["reference_price"] = format_price(given.reference_price_scaled, decimals)
        evidence["previous_bps"] = given.previous_bps
        evidence["current_bps"] = given.current_bps
    else:
        evidence["previous_event_time_ms"] = given.previous_event_time_ms
        evidence["previous_price"] = format_price(given.previous_price_scaled, decimals)
    return evidence


def _payload(trigger_id: str, row: Row, channel_ids: Sequence[int]) -> Row:
    change = row["kind"] == "change"
    return {
        "trigger_id": trigger_id,
        "alert_id": row["alert_id"],
        "owner_id": row["owner_id"],
        "symbol": row["symbol"],
        "kind": row["kind"],
        "window": row["rate_window"],
        "direction": row["direction"],
        "threshold_bps": row["threshold"] if change else None,
        "target": None if change else format_price(row["threshold"], row["decimals"]),
        "note": row["note"],
        "created_at_ms": row["created_at_ms"],
        "expires_at_ms": row["expires_at_ms"],
        "channel_ids": list(channel_ids),
        "evidence": row["trigger"],
    }


def _enabled_channels(database: MemoryDatabase, tx: Transaction, owner_id: int) -> list[int]:
    rows = [tx.see(record) for record in database.channels.indexes["of_owner"].find(owner_id)]
    return sorted(row["channel_id"] for row in rows if row is not None and row["disabled_at"] is None)


def write_commands(database: MemoryDatabase, tx: Transaction, alerts: Sequence[Row], action: str) -> None:
    """One rule command an alert, in order of alert_id; part of the statement that moved them."""
    for row in sorted(alerts, key=lambda row: int(row["alert_id"])):
        command = {name: row[name] for name in ("shard", "alert_id", "version")}
        tx.insert(database.rule_commands, {**command, "action": action})


def write_removes(database: MemoryDatabase, tx: Transaction, alerts: Sequence[Row]) -> None:
    """To each shard that holds the rule, in order of alert_id."""
    for row in sorted(alerts, key=lambda row: int(row["alert_id"])):
        for shard in (row["shard"], row["moving_to"]):
            if shard is not None:
                command = {"shard": shard, "alert_id": row["alert_id"], "version": row["version"]}
                tx.insert(database.rule_commands, {**command, "action": "remove"})


def apply_claims(
    database: MemoryDatabase, tx: Transaction, claims: Sequence[Claim], finalized_at_ms: int
) -> tuple[list[Row], list[int]]:
    """(alerts that fired, ids of those that were refused)."""
    fired = trigger_alerts(database, tx, claims, finalized_at_ms)
    ended = {row["alert_id"] for row in fired}
    rest = [claim for claim in claims if claim.candidate.alert_id not in ended]
    return fired, refuse_claims(database, tx, rest) if rest else []


def refuse_claims(database: MemoryDatabase, tx: Transaction, claims: Sequence[Claim]) -> list[int]:
    """Alerts that are to be installed again, where the routing says by now."""
    tx.statement("lock_refused")
    locked: dict[int, Row] = {}
    for claim in sorted(claims, key=lambda claim: claim.candidate.alert_id):

        def holds(row: Row, claim: Claim = claim) -> bool:
            return bool(
                row["status"] == "ACTIVE" and row["version"] == claim.candidate.version and row["shard"] == claim.shard
            )

        record = database.alerts.primary.records.get(claim.candidate.alert_id)
        row = None if record is None else tx.take(record, holds)
        if row is not None:
            locked[row["alert_id"]] = row
    if not locked:
        return []
    routes = lock_routes(database, tx, {row["symbol"] for row in locked.values()})
    tx.statement("refuse_claims")
    refused = []
    for alert_id, row in locked.items():
        record = database.alerts.primary.records[alert_id]
        inactive = {"active_from_event_time_ms": None, "active_epoch": None, "active_position": None, **NOT_MOVING}
        shard = routes[row["symbol"]].shard_of(alert_id)
        again = {"status": "PENDING", "version": row["version"] + 1, "shard": shard}
        refused.append(tx.update(record, {**inactive, **again}))
    write_commands(database, tx, refused, "create")
    return [row["alert_id"] for row in refused]
