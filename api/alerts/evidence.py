"""A trigger in words: what its owner can check against any price source."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from api.alerts.schemas import bps_to_percent
from api.times import format_time_ms
from contracts.trigger import Evidence

WINDOW_WORDS: Final = {
    "1m": "1 minute",
    "1h": "1 hour",
    "1d": "1 day",
    "1w": "1 week",
    "1mo": "1 month",
    "1y": "1 year",
}
_VERBS: Final = {"UP": "rose", "DOWN": "fell"}


def summarize(symbol: str, target: str | None, evidence: Evidence) -> str:
    """One sentence. `target` is a price alert's, in plain decimals."""
    now = f"{evidence.price} at {format_time_ms(evidence.event_time_ms)}"
    if evidence.fired in ("ABOVE", "BELOW"):
        side = "below" if evidence.fired == "ABOVE" else "above"
        before = _at(evidence.previous_price, evidence.previous_event_time_ms)
        return f"{symbol} reached {target} from {side}: {before} → {now}"
    window = WINDOW_WORDS.get(evidence.window or "", evidence.window)
    before = _at(evidence.reference_price, evidence.reference_time_ms)
    return f"{symbol} {_VERBS[evidence.fired]} {_percent(evidence)}% in {window}: {before} → {now}"


def _at(price: str | None, time_ms: int | None) -> str:
    return f"{price} at {format_time_ms(time_ms)}" if time_ms is not None else f"{price}"


def _percent(evidence: Evidence) -> str:
    """The change without its sign, cut (not rounded) to 2 decimals, so that it never claims more than happened."""
    floor_bps = evidence.current_bps or 0
    if evidence.reference_price is not None:
        reference = Fraction(evidence.reference_price)
        change_bps = (Fraction(evidence.price) - reference) / reference * 10_000
        if change_bps.__floor__() == floor_bps:
            return bps_to_percent(int(abs(change_bps)))
    # A split lies between: the printed prices are on two bases, the floor of the adjusted change is what there is.
    return bps_to_percent(abs(floor_bps))
