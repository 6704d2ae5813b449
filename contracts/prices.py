"""Prices as scaled integers: the only form in which a price is ever compared."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from contracts.vocabulary import MAX_DECIMALS, MAX_SCALED_PRICE

# Plain decimals only: no sign, exponent, separator, space or non-ASCII digit.
PLAIN_DECIMAL: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?", re.ASCII)


class PriceError(ValueError):
    """A price text that is not an exact positive price of its instrument; `reason` is a short code."""

    def __init__(self, reason: str, text: object, decimals: int) -> None:
        super().__init__(f"price {text!r}: {reason} (instrument has {decimals} decimals)")
        self.reason = reason
        self.text = text
        self.decimals = decimals


def parse_price(text: object, decimals: int) -> int:
    """Scaled integer of a plain decimal text, in 10**-decimals units.

    Raises PriceError: not_plain_decimal, not_positive, too_many_decimals, too_large.
    """
    if not isinstance(text, str) or not PLAIN_DECIMAL.fullmatch(text):
        raise PriceError("not_plain_decimal", text, decimals)
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0")
    if len(fraction) > decimals:
        raise PriceError("too_many_decimals", text, decimals)
    scaled = int(whole + fraction.ljust(decimals, "0"))
    if scaled <= 0:
        raise PriceError("not_positive", text, decimals)
    if scaled >= MAX_SCALED_PRICE:
        raise PriceError("too_large", text, decimals)
    return scaled


def format_price(scaled: int, decimals: int) -> str:
    """Shortest plain decimal text of a scaled price: 10500 at 2 decimals is "105"."""
    if not 0 <= decimals <= MAX_DECIMALS:
        raise ValueError(f"decimals {decimals} outside 0..{MAX_DECIMALS}")
    text = format(Decimal(scaled).scaleb(-decimals), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
