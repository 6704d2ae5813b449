"""Prices as scaled integers: exact or refused, never rounded."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.prices import PriceError, format_price, parse_price
from contracts.vocabulary import MAX_SCALED_PRICE


@pytest.mark.parametrize(
    ("text", "decimals", "reason"),
    [
        ("0", 2, "not_positive"),
        ("0.00", 2, "not_positive"),
        ("-3.5", 2, "not_plain_decimal"),
        ("NaN", 2, "not_plain_decimal"),
        ("1e2", 2, "not_plain_decimal"),
        ("12,5", 2, "not_plain_decimal"),
        (" 5", 2, "not_plain_decimal"),
        ("5\n", 2, "not_plain_decimal"),
        ("٣", 2, "not_plain_decimal"),
        ("", 2, "not_plain_decimal"),
        (".5", 2, "not_plain_decimal"),
        ("5.", 2, "not_plain_decimal"),
        (5, 2, "not_plain_decimal"),
        (5.0, 2, "not_plain_decimal"),
        (None, 2, "not_plain_decimal"),
        ("1.001", 2, "too_many_decimals"),
        (str(MAX_SCALED_PRICE), 0, "too_large"),
        ("999999999999999999", 2, "too_large"),
    ],
)
def test_what_is_no_exact_price_is_refused_with_a_reason(text: object, decimals: int, reason: str) -> None:
    with pytest.raises(PriceError) as caught:
        parse_price(text, decimals)
    assert caught.value.reason == reason


def test_edges_of_the_scale() -> None:
    assert parse_price("0.00000000172", 11) == 172
    assert parse_price("700000.00", 2) == 70_000_000
    assert parse_price("1.10000", 1) == 11  # zeros beyond the instrument's decimals say nothing
    assert parse_price(str(MAX_SCALED_PRICE - 1), 0) == MAX_SCALED_PRICE - 1


@given(st.integers(1, MAX_SCALED_PRICE - 1), st.integers(0, 18))
def test_text_and_scaled_price_are_the_same_number(scaled: int, decimals: int) -> None:
    text = format_price(scaled, decimals)
    assert parse_price(text, decimals) == scaled
    assert Decimal(text) * 10**decimals == scaled
