"""Operations back as scenario lines: what was really done, so that the oracle can be asked about the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from stack.replay.scenario import Cancel, Create, Heartbeat, Instrument, Operation, Resume, Settings, Split, Tick


def render_operation(operation: Operation) -> dict[str, Any]:  # noqa: PLR0911  (one row a kind)
    """The JSON object of tests/scenarios/README.md; absent fields stay absent."""
    match operation:
        case Tick(symbol, fields):
            return {"op": "tick", "symbol": symbol, **fields}
        case Heartbeat(frontier_ms):
            return {"op": "heartbeat", "ts": frontier_ms}
        case Create():
            return _render_create(operation)
        case Cancel(alert_id):
            return {"op": "cancel", "id": alert_id}
        case Settings(reorder_ms, ages, max_ahead_ms):
            named = {"reorder_ms": reorder_ms, "reference_age_ms": dict(ages) or None, "max_ahead_ms": max_ahead_ms}
            return {"op": "settings", **_present(named)}
        case Instrument(symbol, decimals):
            return {"op": "instrument", "symbol": symbol, "decimals": decimals}
        case Split(symbol, new_shares, old_shares, effective_from_ms):
            return {
                "op": "split", "symbol": symbol, "new_shares": new_shares, "old_shares": old_shares,
                "effective_from": effective_from_ms,
            }  # fmt: skip
        case Resume(symbol):
            return {"op": "resume", "symbol": symbol}


def _render_create(create: Create) -> dict[str, Any]:
    optional = {
        "window": create.window, "bps": create.bps, "target": create.target, "at": create.created_at_ms,
        "expires_at": create.expires_at_ms,
    }  # fmt: skip
    return {
        "op": "create", "id": create.id, "user": create.user, "symbol": create.symbol, "kind": create.kind.value,
        "direction": create.direction.value, **_present(optional),
    }  # fmt: skip


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def write_recording(path: Path, operations: Iterable[Operation]) -> None:
    """A scenario file of these operations."""
    with path.open("wb") as file:
        for operation in operations:
            file.write(orjson.dumps(render_operation(operation)) + b"\n")
