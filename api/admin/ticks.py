"""POST /v1/admin/ticks: prices by hand or by script, into the same topic as any producer's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter
from pydantic import BaseModel, Field, StrictStr

from api.admin.schemas import FeedName
from api.authentication import Admin
from api.database import PostgresDatabase
from api.openapi import problems
from api.problems import ProblemError
from contracts.dead_letter import Reason
from contracts.event_time import MAX_EVENT_TIME_MS, EventTimeError, parse_event_time
from contracts.prices import PriceError, parse_price
from contracts.symbols import SymbolError, canonical_symbol
from ports.clock import Clock
from ports.message_log import LogError, LogWriter

MAX_TICKS: Final = 1_000
MAX_SEQUENCE: Final = 1 << 62  # feeds/domain/tick.py has the same bound
SHOWN_CHARACTERS: Final = 80

Instruments = Mapping[str, tuple[str, int]]  # symbol -> feed, decimals


class NewTicks(BaseModel):
    """`ticks`: objects as on ticks.v1, `{"symbol","ts","price","seq"?,"session"?}`; each is judged for itself."""

    feed: FeedName | None = Field(default=None, description="only instruments of this feed; default: each one's own")
    ticks: Annotated[list[Any], Field(min_length=1, max_length=MAX_TICKS)]


class RowError(BaseModel):
    """One tick that was not taken."""

    row: int = Field(description="its place in the request, from 0")
    reason: Reason
    detail: StrictStr


class TicksTaken(BaseModel):
    """`accepted` are in Kafka; what the feed makes of their order and times shows in /v1/status."""

    accepted: int
    rejected: int
    errors: list[RowError]


class TickRefusedError(ValueError):
    """Why one row can't be taken."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class TickProducer:
    """Writes to ticks.v1. Opened at the first request, and anew after a failure. Threads share it, one at a time."""

    def __init__(self, open_writer: Callable[[], LogWriter], topic: str, clock: Clock) -> None:
        self._open_writer, self._topic, self._clock = open_writer, topic, clock
        self._lock = threading.Lock()
        self._writer: LogWriter | None = None

    def send(self, messages: list[dict[str, Any]]) -> None:
        """All of them, acknowledged. Raises LogError: then any of them may be in or not."""
        with self._lock:
            writer = self._writer = self._writer or self._open_writer()
            try:
                for message in messages:
                    writer.append(self._topic, message["symbol"].encode(), orjson.dumps(message), self._clock.wall_ms())
                writer.flush()
            except LogError:
                self._writer = None
                raise

    def close(self) -> None:
        with self._lock:
            if self._writer is not None:
                self._writer.close()


def tick_routes(database: PostgresDatabase, producer: TickProducer | None) -> APIRouter:
    """producer None: this API was started without Kafka."""
    router = APIRouter(prefix="/v1/admin", tags=["prices"])

    @router.post("/ticks", operation_id="sendTicks", responses=problems(400, 401, 403, 413, 422, 501, 503))
    def send_ticks(_: Admin, body: NewTicks) -> TicksTaken:
        """Prices into their feeds, good ones beside bad ones. Of ticks sent twice those with seq count once."""
        if producer is None:
            raise ProblemError("not-configured", "This API has no Kafka; set ALERTS_KAFKA, or produce to ticks.v1.")
        known = database.transact(lambda t: t.overview.decimals(_symbols(body.ticks)))
        messages, errors = _judge(body, known)
        if messages:
            try:
                producer.send(messages)
            except LogError:
                raise ProblemError(
                    "unavailable", "Kafka does not answer; some of these ticks may be in.", headers={"Retry-After": "5"}
                ) from None
        return TicksTaken(accepted=len(messages), rejected=len(errors), errors=errors)

    return router


def _symbols(ticks: list[Any]) -> list[str]:
    found = set()
    for tick in ticks:
        try:
            found.add(canonical_symbol(tick.get("symbol") if isinstance(tick, dict) else None))
        except SymbolError:
            continue
    return sorted(found)


def _judge(body: NewTicks, known: Instruments) -> tuple[list[dict[str, Any]], list[RowError]]:
    messages, errors = [], []
    for row, tick in enumerate(body.ticks):
        try:
            messages.append(read_tick(tick, body.feed, known))
        except TickRefusedError as error:
            errors.append(RowError(row=row, reason=error.reason, detail=error.detail))
    return messages, errors


def read_tick(tick: object, feed: str | None, known: Instruments) -> dict[str, Any]:
    """The message for ticks.v1. Raises TickRefusedError, with the gateway's own reasons."""
    if not isinstance(tick, dict):
        raise TickRefusedError(Reason.NOT_AN_OBJECT, "a tick is a JSON object")
    try:
        symbol = canonical_symbol(tick.get("symbol"))
    except SymbolError as error:
        raise TickRefusedError(Reason.BAD_SYMBOL, _printable(error)) from None
    if symbol not in known or feed not in (None, known[symbol][0]):
        raise TickRefusedError(Reason.UNKNOWN_SYMBOL, f"{symbol} is no instrument{f' of {feed}' if feed else ''}")
    own_feed, decimals = known[symbol]
    try:
        event_time_ms = parse_event_time(tick.get("ts"))
        parse_price(tick.get("price"), decimals)
    except EventTimeError as error:
        raise TickRefusedError(Reason.BAD_TIME, _printable(error.problem)) from None
    except PriceError as error:
        raise TickRefusedError(
            Reason(error.reason), f"price: {error.reason.replace('_', ' ')}, {decimals} decimals"
        ) from None
    if not 0 <= event_time_ms <= MAX_EVENT_TIME_MS:
        raise TickRefusedError(Reason.BAD_TIME, "ts is not from 1970 to 9999")
    message = {"feed": own_feed, "symbol": symbol, "ts": event_time_ms, "price": tick["price"]}
    for name, least, reason in (("seq", 1, Reason.BAD_SEQUENCE), ("session", 0, Reason.BAD_SESSION)):
        value = tick.get(name)
        if value is None:
            continue
        if type(value) is not int or not least <= value <= MAX_SEQUENCE:
            raise TickRefusedError(reason, f"{name} is no whole number from {least} to 2^62")
        message[name] = value
    return message


def _printable(problem: object) -> str:
    return str(problem).encode("utf-8", "replace").decode()[: 2 * SHOWN_CHARACTERS]
