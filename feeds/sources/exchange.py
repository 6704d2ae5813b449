"""Trades or tickers of a crypto exchange, by ccxt (the extra `exchanges`): its clients, its names, its rate limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Literal

from pydantic import Field

from contracts.dead_letter import Reason
from feeds.domain.entry import Refusal
from feeds.sources.live import ConnectionFaultError, LiveSettings, LiveSource, RateLimitedError, Session, raw_of
from feeds.sources.plug_ins import SourceOrder
from feeds.sources.secret_references import resolve
from feeds.sources.source import SourceError
from feeds.sources.tick_layout import FoundTick, NumberText, plain_price

MAX_PAGES: Final = 20  # of one symbol before the others have their turn


class ExchangeSettings(LiveSettings):
    """`symbols` names what is asked for, in ccxt's spelling: {"BTC/USD": "BTC-USD"}."""

    exchange: str = Field(pattern=r"^[a-z][a-z0-9]{1,30}$", description="as ccxt calls it: kraken, binance, …")
    symbols: dict[str, str] = Field(min_length=1, max_length=500)
    method: Literal["trades", "tickers"] = "trades"
    interval_ms: int = Field(default=2_000, ge=50, le=86_400_000)
    page_trades: int = Field(default=500, ge=1, le=1_000)
    options: dict[str, Any] = Field(
        default_factory=dict, description="handed to ccxt's client: keys as ${NAME}, urls, sandbox, timeout"
    )


class ExchangeConnector:
    """One connection is an unbroken row of good rounds; a round asks for every symbol."""

    def __init__(self, settings: ExchangeSettings, secrets: Mapping[str, str]) -> None:
        """Raises SourceError when a reference has no variable."""
        self._settings = settings
        self._options = {"enableRateLimit": True, **resolve(settings.options, secrets)}

    async def run(self, session: Session) -> None:
        settings = self._settings
        ccxt = import_module("ccxt.async_support")  # here, for it takes seconds: only this thread waits
        if settings.exchange not in ccxt.exchanges:
            raise SourceError(f"source exchange {settings.exchange!r}: ccxt has none of this name")
        client = getattr(ccxt, settings.exchange)(self._options)
        client.number = str  # prices as the exchange wrote them, no floats
        try:
            while True:
                asked_ms = session.now_ms()
                if settings.method == "tickers":
                    await self._tickers(client, session)
                    is_whole = True
                else:
                    is_whole = all([await self._trades(client, symbol, session) for symbol in settings.symbols])
                if is_whole:
                    session.prove(asked_ms)
                    rest_ms = settings.interval_ms - (session.now_ms() - asked_ms)
                    await asyncio.sleep(max(0, rest_ms) / 1000)
        except (ccxt.RateLimitExceeded, ccxt.DDoSProtection) as error:
            asked = (client.last_response_headers or {}).get("Retry-After", "")
            raise RateLimitedError(float(asked) if str(asked).isdigit() else 0.0) from error
        except ccxt.BaseError as error:  # its text holds the address
            raise ConnectionFaultError(f"{settings.exchange}: {type(error).__name__}") from None
        finally:
            with contextlib.suppress(Exception):  # whatever was wrong has been said; the socket must not stay open
                await client.close()

    async def _trades(self, client: Any, symbol: str, session: Session) -> bool:
        """Every trade since the last one had; False when there is more than MAX_PAGES."""
        before = None
        for _ in range(MAX_PAGES):
            since_ms = session.since_ms(symbol) or None
            trades = await client.fetch_trades(symbol, since_ms, self._settings.page_trades)
            await self._give(symbol, trades, session)
            newest = (trades[-1].get("timestamp"), trades[-1].get("id")) if trades else None
            if len(trades) < self._settings.page_trades or newest == before or since_ms is None:
                return True
            before = newest
        return False

    async def _tickers(self, client: Any, session: Session) -> None:
        symbols = list(self._settings.symbols)
        if client.has.get("fetchTickers"):
            found = await client.fetch_tickers(symbols)
        else:
            found = {symbol: await client.fetch_ticker(symbol) for symbol in symbols}
        for symbol in symbols:
            ticker = found.get(symbol)
            if ticker is not None:
                await self._give(symbol, [{**ticker, "price": ticker.get("last"), "id": None}], session)

    async def _give(self, symbol: str, rows: Sequence[Mapping[str, Any]], session: Session) -> None:
        for row in rows:
            price = row.get("price")
            found: FoundTick | Refusal = Refusal(Reason.UNREADABLE, f"{symbol}: a trade without a price")
            if price is not None:
                body = {"symbol": symbol, "price": plain_price(NumberText(price)), "ts": row.get("timestamp")}
                found = FoundTick(body, str(row.get("id") or ""))
            await session.give(found, raw_of(row.get("info", row)))


class _Exchange:
    settings = ExchangeSettings

    def open(self, settings: Any, order: SourceOrder) -> LiveSource:
        if find_spec("ccxt") is None:
            raise SourceError("source exchange: ccxt is not installed; pip install 'rolling-alerts[exchanges]'")
        return LiveSource(ExchangeConnector(settings, order.secrets or {}), settings, order)


EXCHANGE: Final = _Exchange()
