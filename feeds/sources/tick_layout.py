"""Where in a stranger's JSON the ticks are: paths, units, names. Numbers keep their digits, no float is ever made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field

from contracts.dead_letter import Reason
from feeds.domain.entry import Refusal

MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024
MAX_TICKS_PER_MESSAGE: Final = 100_000
MAX_NUMBER_CHARACTERS: Final = 60
KEY: Final = "@key"  # as a path: the name under which the item stands in its object
_PER_MS: Final = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}


class NumberText(str):
    """A JSON number with a fraction or an exponent, as it was written."""


class FoundTick(NamedTuple):
    """One tick of a message. `body` as on ticks.v1; `tick_id` is what the source itself calls it, or empty."""

    body: dict[str, Any]
    tick_id: str


class TickLayout(BaseModel):
    """Paths are names with dots between (`data.last`, `c.0`); an empty path is the thing itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    items: str = Field(default="", description="where the tick is, or the list or object of ticks")
    symbol: str | None = Field(default="symbol", description=f"{KEY}: the tick's name in the object of ticks")
    fixed_symbol: str | None = None
    price: str = "price"
    ts: str | None = Field(default="ts", description="null: the time of receipt")
    ts_unit: Literal["ms", "s", "us", "ns", "iso"] = "ms"
    id: str | None = Field(default=None, description="the source's own name of the tick, for replays")
    seq: str | None = Field(default=None, description="dense per symbol and session from 1; else leave it out")
    session: str | None = None
    match: dict[str, str | int | bool] = Field(
        default_factory=dict, description="path -> value of messages that hold ticks; others are passed over"
    )

    def matches(self, message: object) -> bool:
        """Whether a message is about ticks at all."""
        return all(look_up(message, path) == value for path, value in self.match.items())

    def ticks(self, message: object) -> Iterator[FoundTick | Refusal]:
        """Every tick of a message that matches; what should be one and isn't is a Refusal beside them."""
        items = look_up(message, self.items)
        pairs: Iterator[tuple[str, object]]
        if isinstance(items, list):
            pairs = (("", item) for item in items)
        elif isinstance(items, dict) and self.symbol == KEY:
            pairs = iter(items.items())
        else:
            pairs = iter([("", items)])
        for count, (name, item) in enumerate(pairs):
            if count >= MAX_TICKS_PER_MESSAGE:
                yield Refusal(Reason.TOO_LONG, f"over {MAX_TICKS_PER_MESSAGE} ticks in one message")
                return
            yield self._tick(name, item)

    def _tick(self, name: str, item: object) -> FoundTick | Refusal:
        symbol = self.fixed_symbol or (name if self.symbol == KEY else look_up(item, self.symbol or ""))
        price = plain_price(look_up(item, self.price))
        if symbol is None or price is None:
            missing = "symbol" if symbol is None else "price"
            return Refusal(Reason.UNREADABLE, f"no {missing} where the source's layout says it is")
        body: dict[str, Any] = {"symbol": symbol, "price": price}
        if self.ts is not None:
            body["ts"] = to_ms(look_up(item, self.ts), self.ts_unit)
        if self.seq is not None:
            body["seq"] = look_up(item, self.seq)
            if self.session is not None:
                body["session"] = look_up(item, self.session)
        tick_id = "" if self.id is None else str(look_up(item, self.id) or "")
        return FoundTick(body, tick_id)


def read_message(raw: bytes | str) -> object:
    """The JSON value with numbers as int or NumberText, or a Refusal."""
    if len(raw) > MAX_MESSAGE_BYTES:
        return Refusal(Reason.TOO_LONG, f"{len(raw)} bytes, at most {MAX_MESSAGE_BYTES} are read")
    text = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    try:
        if b"\\u" in text:
            orjson.loads(
                text
            )  # refuses half of a surrogate pair, which json lets pass and nothing behind us could write
        return json.loads(text, parse_float=NumberText, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        return Refusal(Reason.UNREADABLE, f"not JSON: {type(error).__name__}")


def look_up(value: object, path: str) -> Any:
    """What is at a path; None when there is nothing."""
    for name in path.split(".") if path else ():
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def to_ms(value: object, unit: str) -> object:
    """Epoch ms of a number or its text in `unit`, a part of a millisecond cut off; what is none stays as it is."""
    if unit == "iso" or isinstance(value, bool) or not isinstance(value, int | str):
        return value
    times, divided_by = _PER_MS[unit]
    if isinstance(value, int):
        return value * times // divided_by
    if len(value) > MAX_NUMBER_CHARACTERS:
        return value
    try:
        exact = Decimal(value)
        return int(exact * times // divided_by) if exact.is_finite() and exact.adjusted() < 20 else value
    except InvalidOperation:
        return value


def plain_price(value: object) -> object:
    """As plain decimal text where it is a number; anything else is the gateway's to judge."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, NumberText) and "e" in value.lower() and len(value) <= MAX_NUMBER_CHARACTERS:
        exact = Decimal(value)
        return format(exact, "f") if abs(exact.adjusted()) < MAX_NUMBER_CHARACTERS else str(value)
    return str(value) if isinstance(value, int | NumberText) else value


def _no_number(name: str) -> object:
    raise ValueError(name)
