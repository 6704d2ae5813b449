"""A trigger in words: what its owner can check against any price source."""

from __future__ import annotations

from api.times import format_time_ms
from contracts.trigger import Evidence
from contracts.trigger_words import what_happened


def summarize(symbol: str, target: str | None, threshold_bps: int | None, evidence: Evidence) -> str:
    """One sentence. `target` is a price alert's, in plain decimals; `threshold_bps` a change alert's."""
    if evidence.fired in ("ABOVE", "BELOW"):
        before = _at(evidence.previous_price, evidence.previous_event_time_ms)
    else:
        before = _at(evidence.reference_price, evidence.reference_time_ms)
    now = f"{evidence.price} at {format_time_ms(evidence.event_time_ms)}"
    return f"{what_happened(symbol, target, threshold_bps, evidence)}: {before} → {now}"


def _at(price: str | None, time_ms: int | None) -> str:
    return f"{price} at {format_time_ms(time_ms)}" if time_ms is not None else f"{price}"
