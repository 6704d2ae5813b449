"""A row of `alerts` as the rule that the matcher holds."""

from __future__ import annotations

from typing import Final

from contracts.frames_pb2 import Direction, Kind, Rule
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
