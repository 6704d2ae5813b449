"""The tables of sql/migrations/0001_initial.sql. Columns that are timestamptz there hold epoch milliseconds here."""

from __future__ import annotations

import re
from typing import Final

from contracts.vocabulary import WINDOWS, Status
from simulation.database.table import Row, Table

LIVE_STATUSES: Final = ("PENDING", "ACTIVE", "PAUSED")
OPEN_DELIVERIES: Final = ("PENDING", "SENDING")
ONLY: Final = "all"  # the key of a partial index that has one
FEED_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
CHANGES: Final = ("UP", "DOWN", "EITHER")
STATUSES: Final = tuple(str(status) for status in Status)


def _wrong_feed(row: Row) -> str | None:
    if not FEED_NAME.fullmatch(row["feed"]) or row["clock_mode"] not in ("live", "replay"):
        return "no name or clock mode of a feed"
    return None if 1 <= row["buckets"] <= 1024 else "buckets out of range"


def _wrong_alert(row: Row) -> str | None:
    change, window, direction = row["kind"] == "change", row["rate_window"], row["direction"]
    if not (change or row["kind"] == "price") or row["status"] not in STATUSES:
        return "no such kind or status"
    if change != (window is not None) or not (window is None or window in WINDOWS):
        return "a change, and nothing else, has a window"
    if change != (direction in CHANGES) or not (change or direction in ("ABOVE", "BELOW")):
        return "the direction is not one of the kind"
    if row["expires_at_ms"] <= row["created_at_ms"]:
        return "expires_at_ms is not after created_at_ms"
    if (row["status"] == "TRIGGERED") != (row["trigger"] is not None):
        return "what is TRIGGERED, and nothing else, has its evidence"
    return None


def _wrong_command(row: Row) -> str | None:
    if row["action"] not in ("create", "remove", "rebuild"):
        return "no such action"
    whole = row["payload"] is not None and row["alert_id"] is None and row["version"] is None
    return None if (row["action"] == "rebuild") == whole else "a rebuild, and nothing else, has its own payload"


def _wrong_delivery(row: Row) -> str | None:
    return None if row["status"] in (*OPEN_DELIVERIES, "DELIVERED", "DEAD") else "no such status"


class Schema:
    """Every table, empty."""

    def __init__(self) -> None:
        self._add_reference_data()
        self._add_alerts()
        self._add_protocols()
        self._add_progress()
        self._add_deliveries()

    def tables(self) -> dict[str, Table]:
        """By name, in the order of the migration."""
        return {name: table for name, table in vars(self).items() if isinstance(table, Table)}

    def _add_reference_data(self) -> None:
        self.feeds = Table(
            "feeds",
            [("feed",)],
            {"feed": None, "buckets": None, "clock_mode": None, "settings": {}, "lease": 0, "signs_of_life": 0,
             "last_control": 0, "checkpoint": None, "created_at": None},
            check=_wrong_feed,
        )  # fmt: skip
        self.instruments = Table(
            "instruments",
            [("symbol",)],
            {"symbol": None, "feed": None, "decimals": None, "shards": 1, "routing_version": 1,
             "created_at": None},
            references={"feed": self.feeds},
            check=lambda row: (
                None if 0 <= row["decimals"] <= 18 and 1 <= row["shards"] <= 1024 else "decimals or shards out of range"
            ),
        )  # fmt: skip
        self.splits = Table(
            "splits",
            [("symbol", "effective_from_ms")],
            {"symbol": None, "effective_from_ms": None, "new_shares": None, "old_shares": None, "created_at": None},
            references={"symbol": self.instruments},
            indexes={"of_symbol": lambda row: row["symbol"]},
            check=lambda row: None if row["new_shares"] > 0 and row["old_shares"] > 0 else "shares are not positive",
        )
        self.feed_controls = Table(
            "feed_controls",
            [("control_id",), ("feed", "control_number")],
            {"control_id": None, "feed": None, "bucket": None, "payload": None, "control_number": None,
             "published_at": None, "created_at": None},
            identity="control_id",
            references={"feed": self.feeds},
            indexes={"unpublished": lambda row: row["feed"] if row["published_at"] is None else None},
        )  # fmt: skip
        self.owners = Table(
            "owners",
            [("owner_id",), ("name",)],
            {"owner_id": None, "name": None, "max_live_alerts": 1_000_000, "live_alerts": 0, "created_at": None},
            identity="owner_id",
            check=lambda row: None if row["live_alerts"] >= 0 else "live_alerts is negative",
        )
        self.channels = Table(
            "channels",
            [("channel_id",), ("owner_id", "kind", "address")],
            {"channel_id": None, "owner_id": None, "kind": None, "address": None, "secret": None,
             "created_at": None, "disabled_at": None},
            identity="channel_id",
            references={"owner_id": self.owners},
            indexes={"of_owner": lambda row: row["owner_id"]},
            check=lambda row: None if row["kind"] in ("email", "webhook") else "no such kind",
        )  # fmt: skip

    def _add_alerts(self) -> None:
        self.alerts = Table(
            "alerts",
            [("alert_id",)],
            {"alert_id": None, "owner_id": None, "symbol": None, "shard": None, "kind": None, "rate_window": None,
             "direction": None, "threshold": None, "decimals": None, "note": "", "channel_ids": [],
             "created_at_ms": None, "expires_at_ms": None, "series_version": 0, "status": None, "version": 1,
             "active_from_event_time_ms": None, "active_epoch": None, "active_position": None, "moving_to": None,
             "moving_epoch": None, "moving_position": None, "ended_at": None, "trigger": None, "inserted_at": None},
            identity="alert_id",
            stamp="inserted_at",
            references={"owner_id": self.owners, "symbol": self.instruments},
            indexes={"live_of_shard": lambda row: row["shard"] if row["status"] in LIVE_STATUSES else None},
            check=_wrong_alert,
        )  # fmt: skip
        self.idempotency_keys = Table(
            "idempotency_keys",
            [("owner_id", "key")],
            {"owner_id": None, "key": None, "request_hash": None, "alert_id": None, "created_at": None},
            references={"owner_id": self.owners, "alert_id": self.alerts},
        )
        self.rule_commands = Table(
            "rule_commands",
            [("command_id",), ("shard", "epoch", "number")],
            {"command_id": None, "shard": None, "alert_id": None, "version": None, "action": None, "payload": None,
             "epoch": None, "number": None, "published_at": None, "created_at": None},
            identity="command_id",
            indexes={"unpublished": lambda row: row["shard"] if row["published_at"] is None else None},
            check=_wrong_command,
        )  # fmt: skip
        self.shard_relays = Table(
            "shard_relays", [("shard",)], {"shard": None, "fence": 0, "epoch": 1, "last_number": 0}, stamp=None
        )

    def _add_protocols(self) -> None:
        """That at most one is under way for a symbol or a shard is kept by who inserts them."""
        self.reshards = Table(
            "reshards",
            [("reshard_id",), ("symbol", "version")],
            {"reshard_id": None, "symbol": None, "version": None, "old_shards": None, "new_shards": None,
             "phase": "OPENING", "copied": 0, "switched": 0, "requested_at": None, "ended_at": None},
            identity="reshard_id",
            stamp="requested_at",
            references={"symbol": self.instruments},
            indexes={"open": lambda row: ONLY if row["phase"] != "DONE" else None},
        )  # fmt: skip
        self.routing_marks = Table(
            "routing_marks",
            [("shard", "symbol", "phase")],
            {"shard": None, "symbol": None, "phase": None, "version": None, "epoch": None, "position": None},
            stamp=None,
        )
        self.parked_claims = Table(
            "parked_claims",
            [("alert_id", "version")],
            {"alert_id": None, "version": None, "shard": None, "epoch": None, "position": None, "candidate": None,
             "taken": False},
            stamp=None,
            references={"alert_id": self.alerts},
        )  # fmt: skip
        self.rebuilds = Table(
            "rebuilds",
            [("rebuild_id",)],
            {"rebuild_id": None, "shard": None, "symbol": None, "repair": None, "phase": "BEGINNING", "commands": 0,
             "asserted": 0, "begun": False, "reported": 0, "ended": False, "known": 0, "missing": 0,
             "other_version": 0, "surplus": 0, "differences": None, "requested_at": None, "ended_at": None},
            identity="rebuild_id",
            stamp="requested_at",
            references={"symbol": self.instruments},
            indexes={"open": lambda row: ONLY if row["phase"] != "DONE" else None},
        )  # fmt: skip

    def _add_progress(self) -> None:
        self.consumer_positions = Table(
            "consumer_positions",
            [("topic", "partition")],
            {"topic": None, "partition": None, "next_offset": None},
            stamp=None,
            indexes={"of_topic": lambda row: row["topic"]},
        )
        self.shard_progress = Table(
            "shard_progress",
            [("shard",)],
            {"shard": None, "epoch": 0, "number": 0, "position": 0, "frontier_ms": 0, "swept_ms": 0,
             "metrics_epoch": 0, "metrics_number": 0, "marker_id": 0, "rejected": 0, "duplicate": 0, "late": 0,
             "gap": None, "updated_at": None},
            stamp="updated_at",
        )  # fmt: skip

    def _add_deliveries(self) -> None:
        self.triggers = Table(
            "triggers",
            [("trigger_id",), ("alert_id",)],
            {"trigger_id": None, "alert_id": None, "owner_id": None, "payload": None, "created_at": None,
             "published_at": None},
            indexes={"unpublished": lambda row: ONLY if row["published_at"] is None else None},
        )  # fmt: skip
        self.deliveries = Table(
            "deliveries",
            [("trigger_id", "channel_id")],
            {"trigger_id": None, "channel_id": None, "owner_id": None, "status": "PENDING", "body": None,
             "attempts": 0, "token": 0, "next_attempt_at": None, "last_error": None, "delivered_at": None,
             "created_at": None},
            references={"trigger_id": self.triggers, "channel_id": self.channels},
            indexes={
                "due": lambda row: ONLY if row["status"] in OPEN_DELIVERIES else None,
                "of_trigger": lambda row: row["trigger_id"],
            },
            check=_wrong_delivery,
        )  # fmt: skip
