"""/v1/admin: owners, keys and reference data."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.admin.schemas import (
    Declared,
    KeyList,
    KeyView,
    NewFeed,
    NewInstrument,
    NewKey,
    NewKeyView,
    NewOwner,
    NewQuota,
    NewSplit,
    OwnerPage,
    OwnerView,
    ResumeBody,
    RoutingBody,
    SettingsBody,
)
from api.admin.service import OwnerService
from api.authentication import Admin
from api.database import PostgresDatabase
from api.identifiers import parse_id
from api.openapi import problems
from api.problems import ProblemError
from api.texts import Line
from api.times import EPOCH, format_datetime
from sql.owner_store import Owner
from sql.reference_store import (
    DeclarationError,
    DeclaredOtherwiseError,
    FeedSettings,
    ProtocolUnderWayError,
    ReferenceStore,
    UnknownFeedError,
    UnknownInstrumentError,
)

_ERRORS = problems(400, 401, 403, 404, 409, 413, 422, 503)


class Tag(StrEnum):
    """Sections of the OpenAPI document."""

    OWNERS = "owners"
    REFERENCE = "reference data"


OwnerPath = Annotated[Line, Path(min_length=1, max_length=200)]


def admin_routes(database: PostgresDatabase) -> APIRouter:
    router = APIRouter(prefix="/v1/admin")
    _add_owner_routes(router, OwnerService(database))
    _add_reference_routes(router, ReferenceStore(database.pool))
    return router


def _add_owner_routes(router: APIRouter, service: OwnerService) -> None:
    tags = (Tag.OWNERS,)

    @router.post("/owners", status_code=201, operation_id="createOwner", tags=[*tags], responses=_ERRORS)
    def create_owner(_: Admin, body: NewOwner) -> OwnerView:
        """A new owner."""
        return _owner_view(service.create(body.name, body.max_live_alerts))

    @router.get("/owners", operation_id="listOwners", tags=[*tags], responses=_ERRORS)
    def list_owners(
        _: Admin, cursor: Annotated[str, Query(max_length=20)] = "", limit: Annotated[int, Query(ge=1, le=1_000)] = 100
    ) -> OwnerPage:
        """All owners."""
        found = service.page(_position(cursor), limit + 1)
        last = str(found[limit - 1].owner_id) if len(found) > limit else None
        return OwnerPage(owners=[_owner_view(owner) for owner in found[:limit]], next_cursor=last)

    @router.put("/owners/{name}/quota", operation_id="setQuota", tags=[*tags], responses=_ERRORS)
    def set_quota(_: Admin, name: OwnerPath, body: NewQuota) -> OwnerView:
        """How many live alerts the owner may have."""
        return _owner_view(service.set_quota(name, body.max_live_alerts))

    @router.post("/owners/{name}/keys", status_code=201, operation_id="createKey", tags=[*tags], responses=_ERRORS)
    def create_key(_: Admin, name: OwnerPath, body: NewKey) -> NewKeyView:
        """A key of the owner's; this answer alone shows it."""
        expires_at = None if body.expires_at is None else EPOCH + timedelta(milliseconds=body.expires_at)
        key = service.create_key(name, body.scopes, expires_at)
        return NewKeyView(
            key_id=key.key_id,
            key=key.text,
            owner=name,
            scopes=sorted(set(body.scopes)),
            expires_at=format_datetime(expires_at),
        )

    @router.get("/owners/{name}/keys", operation_id="listKeys", tags=[*tags], responses=_ERRORS)
    def list_keys(_: Admin, name: OwnerPath) -> KeyList:
        """The owner's keys, without their secrets."""
        stamps = ("created_at", "expires_at", "revoked_at")
        rows = service.keys(name)
        return KeyList(keys=[KeyView(**{**row, **{s: format_datetime(row[s]) for s in stamps}}) for row in rows])

    @router.delete("/keys/{key_id}", status_code=204, operation_id="revokeKey", tags=[*tags], responses=_ERRORS)
    def revoke_key(_: Admin, key_id: Annotated[Line, Path(max_length=100)]) -> Response:
        """The key is refused from now on, everywhere within 2 seconds. Idempotent."""
        service.revoke_key(key_id)
        return Response(status_code=204)


def _add_reference_routes(router: APIRouter, store: ReferenceStore) -> None:
    tags = (Tag.REFERENCE,)

    @router.post("/feeds", operation_id="declareFeed", tags=[*tags], responses=_ERRORS)
    def declare_feed(_: Admin, body: NewFeed) -> Declared:
        """A feed. Repeating a declaration changes nothing."""
        return _declare(lambda: store.create_feed(body.feed, body.buckets, body.clock_mode, _settings(body.settings)))

    @router.put("/feeds/{feed}/settings", operation_id="setFeedSettings", tags=[*tags], responses=_ERRORS)
    def set_feed_settings(_: Admin, feed: Annotated[Line, Path(max_length=40)], body: SettingsBody) -> Declared:
        """Bounds of a feed, from the next price on."""
        return _declare(lambda: store.set_settings(feed, _settings(body)))

    @router.post("/instruments", operation_id="declareInstrument", tags=[*tags], responses=_ERRORS)
    def declare_instrument(_: Admin, body: NewInstrument) -> Declared:
        """An instrument of a feed."""
        return _declare(lambda: store.add_instrument(body.symbol, body.feed, body.decimals))

    @router.post("/splits", operation_id="declareSplit", tags=[*tags], responses=_ERRORS)
    def declare_split(_: Admin, body: NewSplit) -> Declared:
        """A split. One that comes after prices on its basis suppresses the symbol until it is resumed."""
        return _declare(lambda: store.add_split(body.symbol, body.effective_from, body.new_shares, body.old_shares))

    @router.post("/resumes", operation_id="resumeSymbol", tags=[*tags], responses=_ERRORS)
    def resume_symbol(_: Admin, body: ResumeBody) -> Declared:
        """Evaluate a suppressed symbol again, from a fresh baseline."""
        return _declare(lambda: store.resume(body.symbol))

    @router.put("/routing", operation_id="setRouting", tags=[*tags], responses=_ERRORS)
    def set_routing(_: Admin, body: RoutingBody) -> Declared:
        """Shards of a hot symbol."""
        return _declare(lambda: store.set_routing(body.symbol, body.shards))


def _declare(write: Callable[[], int | None]) -> Declared:
    try:
        return Declared(control_id=write())
    except (UnknownFeedError, UnknownInstrumentError) as error:
        raise ProblemError("not-found", f"{error}.") from None
    except (DeclaredOtherwiseError, ProtocolUnderWayError) as error:
        raise ProblemError("conflict", f"{error}.") from None
    except DeclarationError as error:
        raise ProblemError("invalid", f"{error}.") from None


def _settings(body: SettingsBody) -> FeedSettings:
    return FeedSettings(
        body.reorder_ms, {str(window): age for window, age in body.reference_age_ms.items()}, body.max_ahead_ms
    )


def _position(cursor: str) -> int:
    return parse_id(cursor, "page") if cursor else 0


def _owner_view(owner: Owner) -> OwnerView:
    return OwnerView(
        owner_id=owner.owner_id,
        name=owner.name,
        max_live_alerts=owner.max_live_alerts,
        live_alerts=owner.live_alerts,
        created_at=format_datetime(owner.created_at) or "",
    )
