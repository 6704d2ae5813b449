"""/healthz, /readyz, /v1/status, /v1/instruments and each of them."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query

from api.authentication import Authenticated
from api.database import PostgresDatabase, PostgresTransaction
from api.health.schemas import (
    Backlog,
    FeedStatus,
    InstrumentPage,
    InstrumentView,
    LatestPrice,
    Liveness,
    OwnerStatus,
    StatusView,
)
from api.openapi import problems
from api.ports import Row
from api.problems import not_found
from api.texts import Line
from api.times import format_time_ms
from contracts.prices import format_price
from contracts.symbols import SymbolError, spellings
from ports.clock import Clock

MAX_PREFIX_LENGTH: Final = 32


def health_routes(database: PostgresDatabase, clock: Clock, version: str) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz", operation_id="getLiveness", tags=["health"])
    async def get_liveness() -> Liveness:
        """The process answers."""
        return Liveness(ok=True)

    @router.get("/readyz", operation_id="getReadiness", tags=["health"], responses=problems(503))
    def get_readiness() -> Liveness:
        """The database answers too."""
        database.transact(lambda t: t.overview.ping())
        return Liveness(ok=True)

    @router.get("/v1/status", operation_id="getStatus", tags=["overview"], responses=problems(401, 503))
    def get_status(principal: Authenticated) -> StatusView:
        """How far each feed is, what waits, how much of your quota is used."""

        def read(transaction: PostgresTransaction) -> StatusView:
            store = transaction.overview
            owner = store.owner(principal.owner_id)
            if owner is None:
                raise not_found("owner")
            return StatusView(
                now=format_time_ms(clock.wall_ms()),
                version=version,
                owner=OwnerStatus(**owner),
                feeds=[_feed(row) for row in store.feeds()],
                backlog=Backlog(**store.backlog()),
            )

        return database.transact(read)

    @router.get("/v1/instruments", operation_id="listInstruments", tags=["overview"], responses=problems(401, 422, 503))
    def list_instruments(
        principal: Authenticated,
        prefix: Annotated[Line, Query(max_length=MAX_PREFIX_LENGTH, description="how the symbol begins")] = "",
        cursor: Annotated[Line, Query(max_length=64, description="next_cursor of the page before")] = "",
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    ) -> InstrumentPage:
        """What alerts can be made on."""
        rows = database.transact(lambda t: t.overview.instruments(cursor, prefix.strip().upper(), limit + 1))
        found = [_instrument(row) for row in rows[:limit]]
        return InstrumentPage(instruments=found, next_cursor=found[-1].symbol if len(rows) > limit else None)

    @router.get(
        "/v1/instruments/{symbol:path}",
        operation_id="getInstrument",
        tags=["overview"],
        responses=problems(401, 404, 503),
    )
    def get_instrument(principal: Authenticated, symbol: str) -> InstrumentView:
        """One instrument, by any usual spelling of its symbol, with its latest price."""
        try:
            spelled = spellings(symbol)
        except SymbolError:
            raise not_found("instrument") from None
        row = database.transact(lambda t: t.overview.instrument(spelled))
        if row is None:
            raise not_found("instrument")
        return _instrument(row)

    return router


def _instrument(row: Row) -> InstrumentView:
    latest = None
    if row["price_scaled"] is not None:
        price = format_price(row["price_scaled"], row["decimals"])
        latest = LatestPrice(price=price, time=format_time_ms(row["event_time_ms"]))
    return InstrumentView(symbol=row["symbol"], feed=row["feed"], decimals=row["decimals"], latest=latest)


def _feed(row: Row) -> FeedStatus:
    def time(name: str) -> str | None:
        return None if row[name] is None else format_time_ms(row[name])

    return FeedStatus(
        **{name: row[name] for name in ("feed", "clock_mode", "rejected", "duplicate", "late", "gaps")},
        frontier=time("frontier_ms"),
        newest_frontier=time("newest_frontier_ms"),
    )
