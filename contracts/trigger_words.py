"""A trigger in words, the same on the page, in mails and in whatever else tells it.

A direction is a verb and a change is a magnitude without a sign, cut towards zero to whole basis points, never rounded:
"fell 7.26%" is −7.2651 %, and no text claims more than happened. Evidence's previous_bps and current_bps are floors of
the signed change, so there the same change is −727: what a text says is not their absolute value.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

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
_SIDES: Final = {"ABOVE": "below", "BELOW": "above"}


def what_happened(symbol: str, target: str | None, threshold_bps: int | None, evidence: Evidence) -> str:
    """ "AAPL fell 5.02% in 1 day", "AAPL reached 105 from below". `target`: a price alert's, in plain decimals;
    `threshold_bps`: a change alert's."""
    if evidence.fired in _SIDES:
        return f"{symbol} reached {target} from {_SIDES[evidence.fired]}"
    window = WINDOW_WORDS.get(evidence.window or "", evidence.window)
    percent = bps_to_percent(change_magnitude_bps(evidence, threshold_bps or 0))
    return f"{symbol} {_VERBS[evidence.fired]} {percent}% in {window}"


def change_magnitude_bps(evidence: Evidence, threshold_bps: int) -> int:
    """The change without its sign, cut towards zero to whole basis points."""
    floor_bps = evidence.current_bps or 0
    if evidence.reference_price is not None and (reference := Fraction(evidence.reference_price)):
        change_bps = (Fraction(evidence.price) - reference) / reference * 10_000
        if change_bps.__floor__() == floor_bps:
            return int(abs(change_bps))
    # A split lies between: the printed prices are on two bases, the floor of the adjusted change is what there is.
    # Of a loss it is the magnitude or one more, and a loss that fired is at least its threshold.
    return floor_bps if floor_bps >= 0 else max(-floor_bps - 1, threshold_bps)


def bps_to_percent(bps: int) -> str:
    """Shortest plain decimal text: 500 is "5", 525 is "5.25"."""
    sign, whole = ("-" if bps < 0 else ""), abs(bps)
    text = f"{sign}{whole // 100}.{whole % 100:02d}"
    return text.rstrip("0").rstrip(".")
