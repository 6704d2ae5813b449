"""What `dead-letters.v1` holds: input that was refused, why, and where it came from. JSON, one a record."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

MAX_RAW_BYTES: Final = 4_096
MAX_NAME_CHARACTERS: Final = 64


class Reason(StrEnum):
    """Why an entry was refused. Prices have the codes of contracts.prices.PriceError."""

    UNREADABLE = "unreadable"  # not JSON, not UTF-8, no CSV row
    BAD_FRAME = "bad_frame"  # a record between our own parts that its job's core can't read; nothing of it was applied
    TOO_LONG = "too_long"
    NOT_AN_OBJECT = "not_an_object"
    UNKNOWN_TYPE = "unknown_type"
    UNKNOWN_FEED = "unknown_feed"
    NOT_IN_LIVE_MODE = "not_in_live_mode"  # heartbeat and flush belong to sources that own the clock
    BAD_SYMBOL = "bad_symbol"
    UNKNOWN_SYMBOL = "unknown_symbol"
    BAD_TIME = "bad_time"
    AHEAD_OF_CLOCK = "ahead_of_clock"
    BEHIND_CLOCK = "behind_clock"  # of a network source whose max_behind_ms says so
    BAD_SEQUENCE = "bad_sequence"
    BAD_SESSION = "bad_session"
    BAD_MARKER = "bad_marker"
    NOT_PLAIN_DECIMAL = "not_plain_decimal"
    NOT_POSITIVE = "not_positive"
    TOO_MANY_DECIMALS = "too_many_decimals"
    TOO_LARGE = "too_large"


class DeadLetter(BaseModel):
    """One refused entry. (feed, source, position) names it: after a crash the same one may be written twice."""

    model_config = ConfigDict(frozen=True)

    reason: Reason
    detail: str
    feed: str
    symbol: str | None
    source: str
    position: int
    raw: str  # the payload as text; bytes that are no UTF-8 as \xNN
    truncated: bool  # raw is only the first MAX_RAW_BYTES


def dead_letter(
    reason: Reason, detail: str, *, feed: str, symbol: object, source: str, position: int, raw: bytes
) -> DeadLetter:
    """A dead letter with everything in it bounded."""
    return DeadLetter(
        reason=reason,
        detail=detail[:MAX_RAW_BYTES],
        feed=feed[:MAX_NAME_CHARACTERS],
        symbol=symbol[:MAX_NAME_CHARACTERS] if isinstance(symbol, str) else None,
        source=source,
        position=position,
        raw=raw[:MAX_RAW_BYTES].decode(errors="backslashreplace"),
        truncated=len(raw) > MAX_RAW_BYTES,
    )
