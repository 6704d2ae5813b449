"""What happens in the demo: days of prices, waves of new alerts, cancels, in the order of the log. Pure and seeded."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

from contracts.vocabulary import DAY_MS, Direction, Kind
from stack.demo.stocks import DECIMALS, SPLITS, SYMBOLS, close_ms, closes_by_day, midnight_ms
from stack.replay.scenario import Cancel, Create, Heartbeat, Instrument, Operation, Split, Tick

SEED: Final = 20130301
OWNERS: Final = ("ada", "ben", "cleo", "dana")
WAVES: Final = (
    date(2000, 3, 31), date(2000, 9, 21), date(2001, 9, 4), date(2002, 10, 1), date(2003, 2, 10),
    date(2005, 2, 1), date(2006, 7, 3), date(2008, 9, 2), date(2010, 5, 3), date(2012, 6, 1),
)  # fmt: skip
# What daily prices can move, and by how many bps: some thresholds fire within days, some never.
_THRESHOLDS_BPS: Final[Mapping[str, tuple[int, ...]]] = {
    "1d": (150, 300, 500, 800, 3_000),
    "1w": (300, 600, 1_000, 2_000),
    "1mo": (500, 1_000, 2_000, 4_000),
    "1y": (1_000, 2_500, 5_000, 7_500),
}
_CHANGE_DIRECTIONS: Final = (Direction.UP, Direction.DOWN, Direction.EITHER)
_TARGET_PERCENTS: Final = (3, 8, 15, 30, 60)
# None: the API's default of 30 days.
_LIFETIME_DAYS: Final = (None, None, 90, 365, 5 * 365, 20 * 365)
_CANCELLED_OF_TEN: Final = 1


def demo_operations() -> Iterator[Operation]:
    """Creates carry no `created_at_ms`: the API's market clock gives it, and the recording takes it over."""
    rng = random.Random(SEED)
    for symbol in SYMBOLS:
        yield Instrument(symbol, DECIMALS)
    splits = {(split.symbol, split.day): split for split in SPLITS}
    sequence: dict[str, int] = defaultdict(int)
    cancels: dict[date, list[str]] = defaultdict(list)
    for day, closes in closes_by_day().items():
        for symbol in closes:
            if split := splits.get((symbol, day)):
                yield Split(symbol, split.new_shares, split.old_shares, midnight_ms(day))
        for symbol, close in closes.items():
            sequence[symbol] += 1
            yield Tick(symbol, {"ts": close_ms(day), "price": str(close), "seq": sequence[symbol]})
        yield Heartbeat(close_ms(day))
        for alert_id in [alert for due in sorted(cancels) if due <= day for alert in cancels.pop(due)]:
            yield Cancel(alert_id)
        if day in WAVES:
            for create in _wave(rng, day, closes):
                yield create
                if rng.randrange(10) < _CANCELLED_OF_TEN:
                    cancels[day + timedelta(days=rng.randrange(5, 90))].append(create.id)


def _wave(rng: random.Random, day: date, closes: Mapping[str, Decimal]) -> Iterator[Create]:
    """For each stock an alert of each window and price direction, one window twice."""
    number = 0
    for symbol, close in closes.items():
        for window in (*_THRESHOLDS_BPS, rng.choice(tuple(_THRESHOLDS_BPS))):
            number += 1
            yield Create(
                id=f"{day:%Y%m%d}-{number:02}", user=rng.choice(OWNERS), symbol=symbol, kind=Kind.CHANGE,
                direction=rng.choice(_CHANGE_DIRECTIONS), window=window, bps=rng.choice(_THRESHOLDS_BPS[window]),
                expires_at_ms=_expiry(rng, day),
            )  # fmt: skip
        for direction in (Direction.ABOVE, Direction.BELOW):
            number += 1
            percent = rng.choice(_TARGET_PERCENTS) * (1 if direction is Direction.ABOVE else -1)
            target = (close * (100 + percent) / 100).quantize(Decimal("0.01"), ROUND_HALF_EVEN)
            yield Create(
                id=f"{day:%Y%m%d}-{number:02}", user=rng.choice(OWNERS), symbol=symbol, kind=Kind.PRICE,
                direction=direction, target=str(target), expires_at_ms=_expiry(rng, day),
            )  # fmt: skip


def _expiry(rng: random.Random, day: date) -> int | None:
    days = rng.choice(_LIFETIME_DAYS)
    return None if days is None else close_ms(day) + days * DAY_MS
