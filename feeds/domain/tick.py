"""Reading one JSON-ish body as a tick: every field checked, nothing converted silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contracts.dead_letter import Reason
from contracts.event_time import MAX_EVENT_TIME_MS, EventTimeError, parse_event_time
from contracts.prices import PriceError, parse_price
from feeds.domain.entry import Refusal

MAX_SEQUENCE: Final = 1 << 62
MAX_SESSION: Final = 1 << 62
MAX_SHOWN_CHARACTERS: Final = 80


def read_event_time(value: object) -> int | Refusal:
    """Epoch ms from 1970 to the end of the year 9999."""
    try:
        event_time_ms = parse_event_time(value)
    except EventTimeError as error:
        return Refusal(Reason.BAD_TIME, f"ts: {error.problem}")
    if not 0 <= event_time_ms <= MAX_EVENT_TIME_MS:
        return Refusal(Reason.BAD_TIME, f"ts: {shown(event_time_ms)} is not a time in milliseconds from 1970 to 9999")
    return event_time_ms


def read_order(body: Mapping[str, Any]) -> tuple[int, int] | Refusal:
    """(sequence, session); sequence 0 when the source has none. A boolean or a float is no number here."""
    sequence, session = body.get("seq"), body.get("session")
    if sequence is None:
        sequence = 0
    elif type(sequence) is not int or not 0 < sequence <= MAX_SEQUENCE:
        return Refusal(Reason.BAD_SEQUENCE, f"seq: {shown(sequence)} is no whole number from 1 to 2^62")
    if session is None:
        session = 0
    elif type(session) is not int or not 0 <= session <= MAX_SESSION:
        return Refusal(Reason.BAD_SESSION, f"session: {shown(session)} is no whole number from 0 to 2^62")
    return sequence, session


def read_price(value: object, decimals: int) -> int | Refusal:
    """Scaled price, above 0."""
    try:
        return parse_price(value, decimals)
    except PriceError as error:
        problem = error.reason.replace("_", " ")
        return Refusal(Reason(error.reason), f"price: {shown(value)}: {problem} (instrument has {decimals} decimals)")


def shown(value: object) -> str:
    """A value in an error's text, bounded."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "…"
