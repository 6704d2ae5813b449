"""Whether a trigger's evidence proves its crossing: whole numbers only, and none of the matcher's code.

A change compares price / reference - 1 with the threshold, both prices on one basis by the splits between them. A price
alert compares both prices with the target, each on its own basis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Final

from api.ports import AlertRecord
from contracts.prices import parse_price
from contracts.trigger import Evidence
from contracts.vocabulary import WINDOW_MS

BPS: Final = 10_000
Splits = Sequence[tuple[int, int, int]]  # (effective from in ms, new shares, old shares), oldest first


@dataclass(frozen=True, slots=True)
class Prices:
    """Scaled prices: of the tick that fired, and of the one before it that it is compared with."""

    price: int
    before: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """`holds`: None when what there is can't decide. `why`: each thing that is wrong or unknown, in a sentence."""

    holds: bool | None
    why: list[str]
    change: Fraction | None = None  # of a change: exact, 1 is a hundred percent


def stored_prices(alert: AlertRecord, evidence: Evidence) -> Prices:
    """Raises PriceError when the evidence has no such price."""
    before = evidence.reference_price if alert.kind == "change" else evidence.previous_price
    return Prices(parse_price(evidence.price, alert.decimals), parse_price(before, alert.decimals))


def check(alert: AlertRecord, evidence: Evidence, prices: Prices, splits: Splits) -> Verdict:
    """Recompute the crossing from two prices; times, thresholds and the change before come from alert and evidence."""
    wrong = _wrong_with_lifetime(alert, evidence)
    if alert.kind == "price":
        wrong += _wrong_with_levels(alert, evidence, prices, splits)
        return Verdict(not wrong, wrong)
    change = exact_change(evidence, prices, splits)
    wrong += _wrong_with_change(alert, evidence, change)
    unknown = []
    if not wrong and evidence.fired == "DOWN" and evidence.previous_bps == -alert.threshold:
        unknown.append("The change before is kept as a whole number of bps, which is the threshold itself.")
    return Verdict(None if unknown else not wrong, wrong + unknown, change)


def exact_change(evidence: Evidence, prices: Prices, splits: Splits) -> Fraction:
    """price / reference - 1 on one basis."""
    reference_ms = evidence.reference_time_ms or 0
    between = [s for s in splits if reference_ms < s[0] <= evidence.event_time_ms]
    return Fraction(prices.price, prices.before) * _shares(between) - 1


def _wrong_with_lifetime(alert: AlertRecord, evidence: Evidence) -> list[str]:
    wrong = []
    if not evidence.active_from_event_time_ms <= evidence.event_time_ms < alert.expires_at_ms:
        wrong.append("The price's time is outside the alert's lifetime.")
    if evidence.fired != alert.direction and not (alert.direction == "EITHER" and evidence.fired in ("UP", "DOWN")):
        wrong.append(f"It fired {evidence.fired}, and the alert is for {alert.direction}.")
    return wrong


def _wrong_with_change(alert: AlertRecord, evidence: Evidence, change: Fraction) -> list[str]:
    wrong = []
    assert alert.window is not None
    assert evidence.previous_bps is not None
    if (
        evidence.reference_time_ms is None
        or evidence.event_time_ms - evidence.reference_time_ms < WINDOW_MS[alert.window]
    ):
        wrong.append(f"The reference price is younger than {alert.window}.")
    if floor(change * BPS) != evidence.current_bps:
        wrong.append(f"The two prices make {floor(change * BPS)} bps, the evidence says {evidence.current_bps}.")
    up = evidence.fired == "UP"
    if floor((change if up else -change) * BPS) < alert.threshold:
        wrong.append("The change does not reach the threshold.")
    # a floor of the signed change: a fall of exactly n bps and one of a little less both read -n
    least_before = evidence.previous_bps if up else -evidence.previous_bps - 1
    if least_before >= alert.threshold:
        wrong.append("The change before had reached the threshold already.")
    return wrong


def _wrong_with_levels(alert: AlertRecord, evidence: Evidence, prices: Prices, splits: Splits) -> list[str]:
    later = splits[alert.series_version :]  # than the target, which is on the basis that its owner was shown
    now = prices.price * _shares([s for s in later if s[0] <= evidence.event_time_ms])
    before_ms = evidence.previous_event_time_ms or 0
    before = prices.before * _shares([s for s in later if s[0] <= before_ms])
    wrong = []
    if not (now >= alert.threshold if evidence.fired == "ABOVE" else now <= alert.threshold):
        wrong.append("The price does not reach the target.")
    if not (before < alert.threshold if evidence.fired == "ABOVE" else before > alert.threshold):
        wrong.append("The price before had reached the target already.")
    return wrong


def _shares(splits: Splits) -> Fraction:
    factor = Fraction(1)
    for _, new_shares, old_shares in splits:
        factor *= Fraction(new_shares, old_shares)
    return factor
