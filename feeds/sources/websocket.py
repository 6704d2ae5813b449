"""Prices that are pushed over a WebSocket, by the `websockets` library."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import orjson
from pydantic import Field
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI, WebSocketException

from feeds.domain.entry import Refusal
from feeds.sources.http_polling import SINCE, retry_after_seconds
from feeds.sources.live import ConnectionFaultError, LiveSettings, LiveSource, RateLimitedError, Session
from feeds.sources.plug_ins import SourceOrder
from feeds.sources.secret_references import resolve
from feeds.sources.tick_layout import TickLayout, look_up, read_message

MAX_FRAME_BYTES: Final = 1024 * 1024
OPEN_TIMEOUT_SECONDS: Final = 10.0
CLOSE_TIMEOUT_SECONDS: Final = 2.0
_RATE_LIMITED: Final = (429, 503)


class WebSocketSettings(LiveSettings):
    """Connects, sends each message of `subscribe`, reads. `{since_ms}` in one is the newest time already had."""

    url: str = Field(pattern=r"^wss?://")
    headers: dict[str, str] = Field(default_factory=dict)
    subscribe: list[Any] = Field(default_factory=list, max_length=1_000, description="JSON values, one message each")
    ready: dict[str, str | int | bool] = Field(
        default_factory=dict,
        description="path -> value of the message that ends a replay; without it the first pong says so",
    )
    ping_interval_ms: int = Field(default=1_000, ge=50, le=60_000, description="how often the connection is proven")
    pong_timeout_ms: int = Field(default=10_000, ge=100, le=120_000)
    layout: TickLayout = TickLayout()


class WebSocketConnector:
    """A pong comes behind everything that was sent before it: that is the proof of having caught up."""

    def __init__(self, settings: WebSocketSettings, secrets: Mapping[str, str]) -> None:
        """Raises SourceError when a reference has no variable."""
        self._settings = settings
        self._url = resolve(settings.url, secrets)
        self._headers = resolve(settings.headers, secrets)
        self._subscribe = [resolve(message, secrets) for message in settings.subscribe]

    async def run(self, session: Session) -> None:
        try:
            async with connect(
                self._url,
                additional_headers=self._headers,
                ping_interval=None,  # our own pings are proofs
                max_size=MAX_FRAME_BYTES,
                open_timeout=OPEN_TIMEOUT_SECONDS,
                close_timeout=CLOSE_TIMEOUT_SECONDS,
            ) as socket:
                for message in self._subscribe:
                    text = message if isinstance(message, str) else orjson.dumps(message).decode()
                    await socket.send(text.replace(SINCE, str(session.since_ms())))
                await _Conversation(socket, self._settings, session).hold()
        except InvalidStatus as error:
            status = error.response.status_code
            if status in _RATE_LIMITED:
                asked = error.response.headers.get("Retry-After")
                raise RateLimitedError(retry_after_seconds(asked, session.wall_ms())) from None
            raise ConnectionFaultError(f"HTTP {status} instead of a WebSocket") from None
        except ConnectionClosed as error:
            code = error.rcvd.code if error.rcvd else None
            raise ConnectionFaultError(f"closed by the far end, code {code}") from None
        except (InvalidURI, InvalidHandshake, WebSocketException, OSError, TimeoutError) as error:
            raise ConnectionFaultError(type(error).__name__) from None


class _Conversation:
    """An open socket: one task reads, one pings."""

    def __init__(self, socket: ClientConnection, settings: WebSocketSettings, session: Session) -> None:
        self._socket = socket
        self._settings = settings
        self._session = session
        self._is_ready = not settings.ready
        self._has_drained = asyncio.Event()  # set while the reader waits for the network

    async def hold(self) -> None:
        """Until either task ends; both then do."""
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._ping())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        while True:
            self._has_drained.set()
            received = await self._socket.recv()
            self._has_drained.clear()
            await self._take(received.encode() if isinstance(received, str) else received)

    async def _take(self, raw: bytes) -> None:
        message = read_message(raw)
        if isinstance(message, Refusal):
            await self._session.give(message, raw)
            return
        if not self._is_ready and all(look_up(message, path) == value for path, value in self._settings.ready.items()):
            self._is_ready = True
            return
        layout = self._settings.layout
        if layout.matches(message):
            for found in layout.ticks(message):
                await self._session.give(found, raw)

    async def _ping(self) -> None:
        while True:
            was_ready, asked_ms = self._is_ready, self._session.now_ms()
            pong = await self._socket.ping()
            try:
                async with asyncio.timeout(self._settings.pong_timeout_ms / 1000):
                    await pong
            except TimeoutError:
                raise ConnectionFaultError(f"no pong within {self._settings.pong_timeout_ms} ms") from None
            await self._has_drained.wait()  # what came before the pong was read first, and is given by now
            if was_ready:
                self._session.prove(asked_ms)
            await asyncio.sleep(self._settings.ping_interval_ms / 1000)


class _WebSocket:
    settings = WebSocketSettings

    def open(self, settings: Any, order: SourceOrder) -> LiveSource:
        return LiveSource(WebSocketConnector(settings, order.secrets or {}), settings, order)


WEBSOCKET: Final = _WebSocket()
