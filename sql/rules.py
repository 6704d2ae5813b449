"""A row of `alerts` as the rule that the matcher holds."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from contracts.frames_pb2 import AssertRules, Direction, Kind, Rule
from contracts.vocabulary import WINDOWS
from sql.connection import Row

KINDS: Final = {"change": Kind.CHANGE, "price": Kind.PRICE}


def rule_message(row: Row) -> Rule:
    """Its columns: alert_id, version, symbol, kind, rate_window, direction, threshold, created_at_ms, expires_at_ms."""
    return Rule(
        alert_id=row["alert_id"],
        version=row["version"],
        symbol=row["symbol"],
        kind=KINDS[row["kind"]],
        window=WINDOWS.index(row["rate_window"]) if row["rate_window"] else 0,
        direction=Direction.Value(row["direction"]),
        threshold=row["threshold"],
        created_at_ms=row["created_at_ms"],
        expires_at_ms=row["expires_at_ms"],
    )


def assert_rules(rebuild_id: int, rows: Sequence[Row]) -> AssertRules:
    """A page of a rebuild; its rows have `active_from_ms` too, 0 while not active."""
    times = struct.pack(f"<{len(rows)}q", *(row["active_from_ms"] for row in rows))
    return AssertRules(rebuild_id=rebuild_id, rules=map(rule_message, rows), active_from_ms=times)
