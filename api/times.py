"""Times on the wire: RFC 3339 with an offset in, UTC out; epoch milliseconds inside."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
MILLISECOND: Final = timedelta(milliseconds=1)


def parse_time_ms(value: object) -> int:
    """Epoch milliseconds of an RFC 3339 text; finer digits are cut off. Raises ValueError in one sentence."""
    if not isinstance(value, str) or not RFC_3339.fullmatch(value):
        raise ValueError(
            "write a time as RFC 3339 with an offset, e.g. 2026-03-01T09:30:00Z or 2026-03-01T10:30:00+01:00"
        )
    try:
        time_ms = (datetime.fromisoformat(value.upper()) - EPOCH) // MILLISECOND
    except ValueError as error:
        raise ValueError(f"no such time: {error}") from None
    if time_ms < 0:
        raise ValueError("a time before 1970 is not possible here")
    return time_ms


def format_time_ms(time_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return (EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_datetime(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC of a wall-clock stamp."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if moment else None


def _schema(example: str) -> dict[str, Any]:
    return {"type": "string", "format": "date-time", "examples": [example]}


TimeMs = Annotated[int, BeforeValidator(parse_time_ms), WithJsonSchema(_schema("2026-03-01T10:30:00+01:00"))]
TimeText = Annotated[str, WithJsonSchema(_schema("2026-03-01T09:30:00.000Z"))]
