"""The words that every part uses the same way: windows, kinds, directions, statuses, limits."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

# The order is part of the wire format: frames name a window by its index here.
WINDOWS: Final[tuple[str, ...]] = ("1m", "1h", "1d", "1w", "1mo", "1y")
WINDOW_MS: Final[dict[str, int]] = {
    "1m": MINUTE_MS,
    "1h": HOUR_MS,
    "1d": DAY_MS,
    "1w": 7 * DAY_MS,
    "1mo": 30 * DAY_MS,
    "1y": 365 * DAY_MS,
}
# A(W): how much older than t-W a reference price may be.
DEFAULT_REFERENCE_AGE_MS: Final[dict[str, int]] = {
    "1m": 30 * SECOND_MS,
    "1h": 10 * MINUTE_MS,
    "1d": 4 * DAY_MS,
    "1w": 4 * DAY_MS,
    "1mo": 4 * DAY_MS,
    "1y": 7 * DAY_MS,
}
DEFAULT_REORDER_MS: Final = 5 * SECOND_MS
DEFAULT_LIFETIME_MS: Final = 30 * DAY_MS

MAX_SCALED_PRICE: Final = 1 << 48  # exclusive
MAX_DECIMALS: Final = 18
MAX_INTEGER: Final = (1 << 63) - 1  # of epochs, numbers, leases and ids: Postgres bigint, and the cores' states
MAX_NAME_CHARACTERS: Final = 255  # of a symbol in a frame; an instrument's is far shorter (contracts.symbols)
MAX_SEQUENCE_JUMP: Final = 1_000_000


class Kind(StrEnum):
    """What an alert watches."""

    CHANGE = "change"
    PRICE = "price"


class Direction(StrEnum):
    """UP, DOWN, EITHER belong to changes; ABOVE, BELOW to prices."""

    UP = "UP"
    DOWN = "DOWN"
    EITHER = "EITHER"
    ABOVE = "ABOVE"
    BELOW = "BELOW"


class Status(StrEnum):
    """An alert's state; the legal moves are finalizer.domain.lifecycle.TRANSITIONS."""

    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    TRIGGERED = "TRIGGERED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
