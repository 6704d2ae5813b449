"""Sources on a network: a thread with an event loop connects, reads and connects again; the gateway polls a queue.

Ticks, proofs of having caught up, and lost connections go through that one queue, so the gateway's clock sees them in
the order in which they happened: silence is counted between two proofs of one connection and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import orjson
import structlog
from pydantic import BaseModel, ConfigDict, Field
from tenacity import AsyncRetrying, RetryCallState
from tenacity.wait import wait_exponential_jitter

from contracts.dead_letter import MAX_RAW_BYTES, Reason
from contracts.event_time import EventTimeError, parse_event_time
from contracts.vocabulary import DAY_MS
from feeds.domain.entry import Refusal, SourceEntry
from feeds.domain.feed_clock import SourceState
from feeds.sources.plug_ins import SourceOrder
from feeds.sources.replay_filter import ReplayFilter
from feeds.sources.source import SourceError
from feeds.sources.tick_layout import FoundTick

MAX_QUEUED: Final = 65_536  # then the connection is not read any more, and the far end waits
QUEUE_FULL_REST_SECONDS: Final = 0.02
CLOSE_WAIT_SECONDS: Final = 5.0
MAX_RATE_LIMIT_SECONDS: Final = 3_600.0

log = structlog.get_logger()


class ConnectionFaultError(RuntimeError):
    """A connection that is over. The text holds no address and no secret: it goes into logs and status."""


class RateLimitedError(ConnectionFaultError):
    """The far end wants fewer requests; `rest_seconds` is what it asked for, 0 when it didn't say."""

    def __init__(self, rest_seconds: float) -> None:
        super().__init__(f"rate limited, asked to rest {rest_seconds:.0f} s")
        self.rest_seconds = min(rest_seconds, MAX_RATE_LIMIT_SECONDS)


class LiveSettings(BaseModel):
    """What every network source may be told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    symbols: dict[str, str] = Field(
        default_factory=dict, description="the source's symbol -> ours; others pass as they are"
    )
    clock: Literal["source", "received"] = Field(
        default="source", description="received: ticks get the time at which they came, for sources with a wrong clock"
    )
    max_behind_ms: int | None = Field(
        default=None, ge=0, le=DAY_MS, description="once caught up, an older tick is refused; null: none is"
    )
    first_rest_seconds: float = Field(default=1.0, gt=0, le=60, description="before a second try; doubled each time")
    max_rest_seconds: float = Field(default=60.0, gt=0, le=3_600)


class Connector(Protocol):
    """What a kind of network source has to do."""

    async def run(self, session: Session) -> None:
        """One connection, from its beginning to its end: give what comes, prove that it lives.

        Returning, or raising anything, ends it; after a rest it is called again.
        """
        ...


class Session:
    """One connection, as its connector tells it."""

    def __init__(self, source: LiveSource, connection: int) -> None:
        self._source = source
        self._connection = connection
        self.is_proven = False  # caught up once

    def now_ms(self) -> int:
        """Monotonic: the time to prove with."""
        return self._source.clock.monotonic_ms()

    def wall_ms(self) -> int:
        return self._source.clock.wall_ms()

    def since_ms(self, symbol: str | None = None) -> int:
        """From this event time on ticks (of one of the source's symbols) may be lacking; 0: nothing is known yet."""
        return self._source.since_ms(symbol)

    async def give(self, found: FoundTick | Refusal, raw: bytes) -> None:
        """A tick, or what should have been one. Waits while the gateway is behind."""
        await self._source.take(found, raw, self.is_proven)

    def prove(self, asked_at_ms: int) -> None:
        """Everything that the far end had at that moment has been given."""
        self.is_proven = True
        self._source.tell(SourceState(self._connection, asked_at_ms))


class LiveSource:
    """feeds.sources.source.Source over a Connector. It can't be read again: positions are its own count."""

    def __init__(self, connector: Connector, settings: LiveSettings, order: SourceOrder) -> None:
        self.clock = order.clock
        self._connector = connector
        self._settings = settings
        self._order = order
        self._next = order.first_position
        self._state = SourceState(0, None)
        self._queue: deque[tuple[object, bytes] | SourceState] = deque()
        self._filled = threading.Event()
        self._filter = ReplayFilter(order.frontier_ms)
        self._connection = 0
        self._fault: str | None = "not connected yet"
        self._counts = {"taken": 0, "repeats": 0, "unreadable": 0, "ahead": 0, "behind": 0, "rate_limited": 0}
        self._behind_ms: int | None = None
        first, most = settings.first_rest_seconds, settings.max_rest_seconds
        backoff = wait_exponential_jitter(multiplier=first, max=most, jitter=first)
        self._rest = RestBetweenTries(backoff)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"source-{order.feed}", daemon=True)
        self._task: asyncio.Task[None] | None = None
        self._thread.start()

    # -- the gateway's side -----------------------------------------------------------------------
    def seek(self, positions: Mapping[str, int]) -> None:
        """What has gone by can't be had again."""

    def poll(self, max_entries: int, timeout_seconds: float) -> Sequence[SourceEntry]:
        if not self._queue and timeout_seconds > 0:
            self._filled.clear()
            if not self._queue:
                self._filled.wait(timeout_seconds)
        entries: list[SourceEntry] = []
        while len(entries) < max_entries and self._queue:
            item = self._queue.popleft()
            if isinstance(item, SourceState):
                self._state = item
            else:
                entries.append(SourceEntry(self._order.name, self._next, item[0], item[1]))
                self._next += 1
        return entries

    def positions(self) -> Mapping[str, int]:
        return {self._order.name: self._next}

    def state(self) -> SourceState:
        return self._state

    def detail(self) -> dict[str, Any]:
        """Counters, and what is wrong now."""
        return {
            **self._counts, "connection": self._connection, "queued": len(self._queue),
            "behind_ms": self._behind_ms, "fault": self._fault,
        }  # fmt: skip

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is over already
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(CLOSE_WAIT_SECONDS)

    # -- the connector's side, in the loop's thread ------------------------------------------------
    def since_ms(self, symbol: str | None) -> int:
        if symbol is None:
            return self._filter.since_ms()
        return self._filter.newest_ms(self._settings.symbols.get(symbol, symbol))

    def tell(self, state: SourceState) -> None:
        self._fault = None if state.caught_up_at_ms is not None else self._fault
        self._queue.append(state)
        self._filled.set()

    async def take(self, found: FoundTick | Refusal, raw: bytes, is_proven: bool) -> None:
        body: object = self._judge(found, is_proven)
        if body is None:
            return
        while len(self._queue) >= MAX_QUEUED:
            await asyncio.sleep(QUEUE_FULL_REST_SECONDS)
        self._queue.append((body, raw[: MAX_RAW_BYTES + 1]))
        self._filled.set()

    def _judge(self, found: FoundTick | Refusal, is_proven: bool) -> object:
        """What goes on to the gateway; None: it was there before."""
        if isinstance(found, Refusal):
            self._counts["unreadable"] += 1
            return found
        body, wall_ms = found.body, self.clock.wall_ms()
        if isinstance(body["symbol"], str):
            body["symbol"] = self._settings.symbols.get(body["symbol"], body["symbol"])
        told = body.get("ts")
        if self._settings.clock == "received" or told is None:
            body["ts"] = wall_ms
        try:
            event_time_ms = parse_event_time(body["ts"])
        except EventTimeError:
            return body  # refused by the gateway, with its own words
        if "seq" not in body and isinstance(body["symbol"], str) and isinstance(body["price"], str):
            key = found.tick_id or (event_time_ms if told is None else told, body["price"])
            if self._filter.is_repeat(body["symbol"], key, event_time_ms, is_id=bool(found.tick_id)):
                self._counts["repeats"] += 1
                return None
        self._counts["taken"] += 1
        self._behind_ms = wall_ms - event_time_ms
        if self._behind_ms < 0:
            self._counts["ahead"] += 1  # by more than the feed's ahead_of_clock_ms the gateway refuses it
        most = self._settings.max_behind_ms
        if most is not None and is_proven and self._behind_ms > most:
            self._counts["behind"] += 1
            return Refusal(Reason.BEHIND_CLOCK, f"ts: {event_time_ms} is over {most} ms behind the gateway's clock")
        return body

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._task = self._loop.create_task(self._connect_for_ever())
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _connect_for_ever(self) -> None:
        while True:
            self._connection += 1
            session = Session(self, self._connection)
            asked_seconds = 0.0
            try:
                await self._connector.run(session)
                fault = "the far end closed the connection"
            except RateLimitedError as error:
                self._counts["rate_limited"] += 1
                fault, asked_seconds = str(error), error.rest_seconds
            except (ConnectionFaultError, SourceError) as error:
                fault = str(error)
            except Exception as error:  # a library's text may hold an address with a key in it
                fault = type(error).__name__
            self._fault = fault
            self.tell(SourceState(self._connection, None))
            self._filter.reconnected()
            rest_seconds = max(asked_seconds, self._rest.after(session.is_proven))
            log.warning("source not connected", feed=self._order.feed, fault=fault, rest_seconds=round(rest_seconds, 1))
            await asyncio.sleep(rest_seconds)


class RestBetweenTries:
    """tenacity's exponential rest with jitter, begun anew after a connection that worked."""

    def __init__(self, backoff: wait_exponential_jitter) -> None:
        self._backoff = backoff
        self._state = RetryCallState(AsyncRetrying(), None, (), {})
        self._state.attempt_number = 0

    def after(self, worked: bool) -> float:
        """Seconds to rest before the next try."""
        self._state.attempt_number = 1 if worked else self._state.attempt_number + 1
        return self._backoff(self._state)


def raw_of(value: object) -> bytes:
    """What a dead letter shows of something that did not come as text."""
    try:
        return orjson.dumps(value, default=str)[:MAX_RAW_BYTES]
    except (TypeError, orjson.JSONEncodeError):
        return b""
