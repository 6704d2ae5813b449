"""Prices that are asked for over HTTP again and again: a quote page, or a list of trades since a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx
from pydantic import Field

from feeds.domain.entry import Refusal
from feeds.sources.live import ConnectionFaultError, LiveSettings, LiveSource, RateLimitedError, Session
from feeds.sources.plug_ins import SourceOrder
from feeds.sources.secret_references import resolve
from feeds.sources.tick_layout import MAX_MESSAGE_BYTES, TickLayout, read_message

SINCE: Final = "{since_ms}"
_RATE_LIMITED: Final = (429, 503)
_TRANSPORT_ERRORS: Final = (httpx.HTTPError, httpx.InvalidURL)


class HttpSettings(LiveSettings):
    """`GET url` every `interval_ms`. `{since_ms}` in a parameter is the newest time already had."""

    url: str = Field(pattern=r"^https?://")
    params: dict[str, str] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    interval_ms: int = Field(default=5_000, ge=50, le=86_400_000)
    timeout_ms: int = Field(default=10_000, ge=100, le=120_000)
    full_page: int | None = Field(
        default=None, ge=1, description="an answer with so many ticks may have more behind it: asked again at once"
    )
    layout: TickLayout = TickLayout()


class HttpConnector:
    """A connection is an unbroken row of good answers. Each proves that nothing was waiting when it was asked for."""

    def __init__(self, settings: HttpSettings, secrets: Mapping[str, str]) -> None:
        """Raises SourceError when a reference has no variable."""
        self._settings = settings
        self._url = resolve(settings.url, secrets)
        self._headers = resolve(settings.headers, secrets)
        self._params = resolve(settings.params, secrets)
        self._etag: str | None = None

    async def run(self, session: Session) -> None:
        timeout = self._settings.timeout_ms / 1000
        async with httpx.AsyncClient(timeout=timeout, headers=self._headers) as client:
            while True:
                asked_ms = session.now_ms()
                more = await self._ask(client, session)
                if more:
                    continue
                session.prove(asked_ms)
                rest_ms = self._settings.interval_ms - (session.now_ms() - asked_ms)
                await asyncio.sleep(max(0, rest_ms) / 1000)

    async def _ask(self, client: httpx.AsyncClient, session: Session) -> bool:
        """One request; whether more is there to ask for. Raises ConnectionFaultError."""
        headers = {} if self._etag is None or SINCE in str(self._params) else {"If-None-Match": self._etag}
        params = {name: value.replace(SINCE, str(session.since_ms())) for name, value in self._params.items()}
        try:
            async with client.stream("GET", self._url, params=params or None, headers=headers) as response:
                if response.status_code in _RATE_LIMITED:
                    raise RateLimitedError(retry_after_seconds(response.headers.get("Retry-After"), session.wall_ms()))
                if response.status_code == 304:
                    return False
                if response.status_code != 200:
                    raise ConnectionFaultError(f"HTTP {response.status_code}")
                raw = await _read_bounded(response)
        except _TRANSPORT_ERRORS as error:
            raise ConnectionFaultError(type(error).__name__) from None
        message = read_message(raw)
        if isinstance(message, Refusal):
            await session.give(message, raw)
            raise ConnectionFaultError(f"an answer that is no JSON ({len(raw)} bytes)")
        self._etag = response.headers.get("ETag")
        return await self._give(message, raw, session)

    async def _give(self, message: object, raw: bytes, session: Session) -> bool:
        layout = self._settings.layout
        if not layout.matches(message):
            raise ConnectionFaultError("an answer without what layout.match asks for")
        count = 0
        for found in layout.ticks(message):
            await session.give(found, raw)
            count += 1
        return self._settings.full_page is not None and count >= self._settings.full_page


def retry_after_seconds(value: str | None, wall_ms: int) -> float:
    """Of a Retry-After header: seconds, or a date; 0 when there is none or it is neither."""
    if value is None:
        return 0.0
    if value.strip().isdigit():
        return float(value.strip()[:9])
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - wall_ms / 1000)


async def _read_bounded(response: httpx.Response) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > MAX_MESSAGE_BYTES:
            raise ConnectionFaultError(f"an answer over {MAX_MESSAGE_BYTES} bytes")
    return b"".join(parts)


class _Http:
    settings = HttpSettings

    def open(self, settings: Any, order: SourceOrder) -> LiveSource:
        return LiveSource(HttpConnector(settings, order.secrets or {}), settings, order)


HTTP: Final = _Http()
