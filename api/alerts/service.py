"""What happens to alerts on their owner's word, each in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from api.alerts.cursor import FIRST, CursorError, decode_cursor, encode_cursor
from api.alerts.schemas import NewChangeAlert, NewPriceAlert
from api.market_clock import feed_clocks_ms, market_now_ms
from api.ports import (
    AlertFilter,
    AlertRecord,
    AlertStore,
    Database,
    IdempotencyKeyTakenError,
    InstrumentRoute,
    NewAlert,
    Row,
    Transaction,
)
from api.principal import Principal
from api.problems import ProblemError, not_found
from api.times import format_time_ms
from contracts.keys import shard_of
from contracts.prices import PriceError, format_price, parse_price
from contracts.symbols import SymbolError, spellings
from contracts.vocabulary import DEFAULT_LIFETIME_MS, MAX_SCALED_PRICE
from finalizer.domain.lifecycle import Event, sources
from ports.clock import Clock

MAX_IDEMPOTENT_ATTEMPTS: Final = 3
LAST_TIME_MS: Final = 253_402_300_799_999  # the end of year 9999: the last that RFC 3339 can write

AlertRequest = NewChangeAlert | NewPriceAlert


@dataclass(frozen=True, slots=True)
class Created:
    """The alert of a create; `replayed` when an earlier request with the same key made it."""

    alert: AlertRecord
    replayed: bool


class AlertService:
    """Every method is one transaction; every error a ProblemError or the database's own."""

    def __init__(self, database: Database, clock: Clock, market_clock_bound_ms: int) -> None:
        self._database = database
        self._clock = clock
        self._bound_ms = market_clock_bound_ms

    def create(self, principal: Principal, request: AlertRequest, idempotency_key: str | None) -> Created:
        """A PENDING alert, its create command and its place in the quota; or the one that this key made before."""
        if request.created_at is not None and not principal.admin:
            raise ProblemError("forbidden", "created_at is for keys of scope admin.", field="body.created_at")
        request_hash = _request_hash(request) if idempotency_key is not None else None
        for _ in range(MAX_IDEMPOTENT_ATTEMPTS):
            try:
                return self._database.transact(
                    lambda transaction: self._create(transaction, principal, request, idempotency_key, request_hash)
                )
            except IdempotencyKeyTakenError:
                continue  # the other request has committed: now its alert is there to be replayed
        raise ProblemError("conflict", "Other requests with this Idempotency-Key are under way; send it again.")

    def _create(
        self,
        transaction: Transaction,
        principal: Principal,
        request: AlertRequest,
        idempotency_key: str | None,
        request_hash: bytes | None,
    ) -> Created:
        store = transaction.alerts
        if idempotency_key is not None:
            earlier = store.find_idempotent(principal.owner_id, idempotency_key)
            if earlier is not None:
                if earlier[0] != request_hash:
                    raise ProblemError(
                        "idempotency-key-reused",
                        "This Idempotency-Key made another alert; take a new key for this one.",
                    )
                return Created(self._existing(store, principal, earlier[1]), replayed=True)
        route = self._route(store, request.symbol)
        if request.channels:
            self._check_channels(transaction, principal, request.channels)
        new = self._new_alert(principal, request, route, idempotency_key, request_hash)
        alert = store.insert(new)
        if alert is None:
            raise ProblemError(
                "quota-exceeded",
                "You have as many live alerts as your quota allows; cancel one or wait until one ends.",
            )
        return Created(alert, replayed=False)

    def _route(self, store: AlertStore, symbol: str) -> InstrumentRoute:
        try:
            route = store.find_instrument(spellings(symbol))
        except SymbolError as error:
            raise ProblemError("invalid", str(error), field="body.symbol") from None
        if route is None:
            raise ProblemError(
                "invalid",
                f"There is no instrument {symbol.strip()!r}; GET /v1/instruments lists them.",
                field="body.symbol",
            )
        return route

    def _check_channels(self, transaction: Transaction, principal: Principal, channel_ids: list[int]) -> None:
        missing = transaction.channels.missing(principal.owner_id, channel_ids)
        if missing:
            raise ProblemError("invalid", f"You have no channel {missing[0]}.", field="body.channels")

    def _new_alert(
        self,
        principal: Principal,
        request: AlertRequest,
        route: InstrumentRoute,
        idempotency_key: str | None,
        request_hash: bytes | None,
    ) -> NewAlert:
        created_at_ms = self._created_at_ms(request, route)
        expires_at_ms = created_at_ms + DEFAULT_LIFETIME_MS if request.expires_at is None else request.expires_at
        if not created_at_ms < expires_at_ms <= LAST_TIME_MS:
            raise ProblemError(
                "invalid",
                f"expires_at must be after the market's time, now {format_time_ms(created_at_ms)} for {route.symbol}.",
                field="body.expires_at",
            )
        window, threshold = (
            (request.window, request.bps()) if isinstance(request, NewChangeAlert) else (None, _target(request, route))
        )
        return NewAlert(
            alert_id=route.next_alert_id,
            owner_id=principal.owner_id,
            symbol=route.symbol,
            shard=shard_of(route.feed, route.symbol, route.buckets, route.next_alert_id, route.shards),
            kind=request.kind,
            window=window,
            direction=request.direction,
            threshold=threshold,
            decimals=route.decimals,
            note=request.note,
            channel_ids=sorted(set(request.channels)),
            created_at_ms=created_at_ms,
            expires_at_ms=expires_at_ms,
            idempotency_key=idempotency_key,
            request_hash=request_hash,
        )

    def _created_at_ms(self, request: AlertRequest, route: InstrumentRoute) -> int:
        if request.created_at is not None:
            return request.created_at
        now_ms = market_now_ms(route.clock_mode, route.frontier_ms, self._clock.wall_ms(), self._bound_ms)
        if now_ms is None:
            raise ProblemError(
                "invalid",
                f"The replay feed {route.feed} has not begun, so it is no time there yet; try again when it runs.",
                field="body.created_at",
            )
        return now_ms

    def _existing(self, store: AlertStore, principal: Principal, alert_id: int) -> AlertRecord:
        clocks_ms = feed_clocks_ms(store.feed_frontiers(), self._clock.wall_ms(), self._bound_ms)
        alert = store.find(principal.owner_id, alert_id, clocks_ms)
        if alert is None:
            raise not_found("alert")
        return alert

    def find(self, principal: Principal, alert_id: int) -> AlertRecord:
        return self._database.transact(lambda transaction: self._existing(transaction.alerts, principal, alert_id))

    def page(
        self, principal: Principal, status: str | None, symbol: str | None, cursor: str | None, limit: int
    ) -> tuple[list[AlertRecord], str | None]:
        """Newest first, and the next page's cursor."""

        def read(transaction: Transaction) -> tuple[list[AlertRecord], str | None]:
            store = transaction.alerts
            shown = AlertFilter(status, self._listed_symbol(store, symbol))
            try:
                before = FIRST if cursor is None else decode_cursor(cursor, shown)
            except CursorError as error:
                raise ProblemError("invalid", str(error), field="query.cursor") from None
            clocks_ms = feed_clocks_ms(store.feed_frontiers(), self._clock.wall_ms(), self._bound_ms)
            found = store.page(principal.owner_id, shown, before, limit + 1, clocks_ms)
            more = len(found) > limit
            return found[:limit], encode_cursor(found[limit - 1].alert_id, shown) if more else None

        return self._database.transact(read)

    def _listed_symbol(self, store: AlertStore, symbol: str | None) -> str | None:
        if symbol is None:
            return None
        try:
            found = store.resolve_symbol(spellings(symbol))
        except SymbolError as error:
            raise ProblemError("invalid", str(error), field="query.symbol") from None
        if found is None:
            raise ProblemError("invalid", f"There is no instrument {symbol.strip()!r}.", field="query.symbol")
        return found

    def cancel(self, principal: Principal, alert_id: int) -> AlertRecord:
        """End it, if it hasn't ended; either way the state that it is in for good."""
        return self._move(principal, alert_id, Event.CANCEL)

    def pause(self, principal: Principal, alert_id: int) -> AlertRecord:
        return self._move(principal, alert_id, Event.PAUSE)

    def resume(self, principal: Principal, alert_id: int) -> AlertRecord:
        return self._move(principal, alert_id, Event.RESUME)

    def _move(self, principal: Principal, alert_id: int, event: Event) -> AlertRecord:
        def move(transaction: Transaction) -> AlertRecord:
            store = transaction.alerts
            moves = {Event.CANCEL: store.cancel, Event.PAUSE: store.pause, Event.RESUME: store.resume}
            moved = moves[event](principal.owner_id, alert_id, sources(event))
            alert = self._existing(store, principal, alert_id)
            if not moved and event is not Event.CANCEL:
                raise ProblemError("conflict", f"{event.capitalize()} is not possible: the alert is {alert.status}.")
            return alert

        return self._database.transact(move)

    def deliveries(self, principal: Principal, alert_id: int) -> list[Row]:
        def read(transaction: Transaction) -> list[Row]:
            store = transaction.alerts
            self._existing(store, principal, alert_id)
            return store.deliveries(principal.owner_id, alert_id)

        return self._database.transact(read)


def _target(request: NewPriceAlert, route: InstrumentRoute) -> int:
    """The exact scaled target, or one sentence why there is none."""
    try:
        return parse_price(request.target, route.decimals)
    except PriceError as error:
        sentence = {
            "not_plain_decimal": 'must be plain decimal text such as "70000.5": no sign, exponent or separators',
            "not_positive": "must be greater than zero",
            "too_many_decimals": f"has more than the {route.decimals} decimals of {route.symbol}",
            "too_large": f"must be below {format_price(MAX_SCALED_PRICE, route.decimals)} for {route.symbol}",
        }[error.reason]
        raise ProblemError("invalid", f"The target {sentence}.", field="body.target") from None


def _request_hash(request: AlertRequest) -> bytes:
    """Equal for requests that ask for the same, however they were formatted."""
    return blake2b(request.model_dump_json().encode(), digest_size=32).digest()
