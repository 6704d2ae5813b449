"""Event times: epoch milliseconds, or ISO 8601 text that carries an offset."""

from __future__ import annotations

from datetime import datetime
from typing import Final

MAX_EVENT_TIME_MS: Final = 253_402_300_799_999  # the last millisecond of the year 9999


class EventTimeError(ValueError):
    """A value that names no moment; `value` is what came."""

    def __init__(self, problem: str, value: object) -> None:
        super().__init__(f"time {value!r}: {problem}; give epoch milliseconds or ISO 8601 with an offset")
        self.problem, self.value = problem, value


def parse_event_time(value: object) -> int:
    """Epoch milliseconds of an int or of an ISO 8601 text. Raises EventTimeError.

    A part of a millisecond is rounded with the very expression of the scenarios' oracle: both agree on every text.
    """
    if type(value) is int:
        return value
    if not isinstance(value, str):
        raise EventTimeError("neither a whole number nor a text", value)
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
        if moment.tzinfo is None:
            raise EventTimeError("no offset", value)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        if isinstance(error, EventTimeError):
            raise
        raise EventTimeError("not ISO 8601", value) from None
