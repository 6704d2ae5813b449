"""Daily closes of five stocks, 2000-2013, as they were printed on the day, with the splits that fell into them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Final

SYMBOLS: Final = ("AAPL", "FB", "GOOG", "IBM", "MSFT")
DECIMALS: Final = 4
# New York closes at 20:00 or 21:00 UTC; one fixed hour keeps a day exactly 24 hours from the next.
_CLOSE: Final = time(21, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StockSplit:
    """From this day's prices on, a share of before is `new_shares` / `old_shares` shares."""

    symbol: str
    day: date
    new_shares: int
    old_shares: int


# The printed closes halve on exactly these days (tests/demo/test_stocks.py looks for them in the data).
SPLITS: Final = (
    StockSplit("AAPL", date(2000, 6, 21), 2, 1),
    StockSplit("MSFT", date(2003, 2, 18), 2, 1),
    StockSplit("AAPL", date(2005, 2, 28), 2, 1),
)


def close_ms(day: date) -> int:
    """Event time of a day's closing price, epoch milliseconds."""
    return int(datetime.combine(day, _CLOSE).timestamp()) * 1_000


def midnight_ms(day: date) -> int:
    return int(datetime.combine(day, time(tzinfo=UTC)).timestamp()) * 1_000


@lru_cache(maxsize=1)
def closes_by_day() -> Mapping[date, Mapping[str, Decimal]]:
    """Day -> symbol -> printed close, days rising. A close is the shortest decimal of the data's float: its text."""
    from bokeh_sampledata import stocks  # noqa: PLC0415  (reads a megabyte; only the demo needs it)

    days: dict[date, dict[str, Decimal]] = defaultdict(dict)
    for symbol in SYMBOLS:
        series = getattr(stocks, symbol)
        for day, close in zip(series["date"], series["close"], strict=True):
            days[date.fromisoformat(day)][symbol] = Decimal(repr(close))
    return dict(sorted(days.items()))
