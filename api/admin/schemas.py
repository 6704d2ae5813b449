"""Administration on the wire."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, Field, StrictInt, StrictStr

from api.texts import check_line
from api.times import TimeMs, TimeText
from contracts.symbols import canonical_symbol
from contracts.vocabulary import MAX_DECIMALS

MAX_QUOTA: Final = 1_000_000_000
MAX_SHARES: Final = 1_000_000_000
MAX_SETTING_MS: Final = 10 * 365 * 86_400_000

OwnerName = Annotated[StrictStr, Field(min_length=1, max_length=200, examples=["ada"]), AfterValidator(check_line)]
Quota = Annotated[StrictInt, Field(ge=0, le=MAX_QUOTA)]
FeedName = Annotated[StrictStr, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$", examples=["stocks"])]
Symbol = Annotated[StrictStr, AfterValidator(canonical_symbol), Field(examples=["AAPL"])]
SettingMs = Annotated[StrictInt, Field(ge=0, le=MAX_SETTING_MS)]
Window = Literal["1m", "1h", "1d", "1w", "1mo", "1y"]


class NewOwner(BaseModel):
    """One who has alerts."""

    name: OwnerName
    max_live_alerts: Quota | None = Field(default=None, description="default: 1 000 000")


class NewQuota(BaseModel):
    max_live_alerts: Quota


class OwnerView(BaseModel):
    owner_id: int
    name: str
    max_live_alerts: int
    live_alerts: int
    created_at: TimeText


class OwnerPage(BaseModel):
    """By owner_id. `next_cursor` is null on the last page."""

    owners: list[OwnerView]
    next_cursor: str | None


class NewKey(BaseModel):
    """A key; scope `admin` also opens /v1/admin and `created_at`."""

    scopes: list[Literal["alerts", "admin"]] = Field(default=["alerts"], min_length=1, max_length=2)
    expires_at: TimeMs | None = Field(default=None, description="default: never")


class KeyView(BaseModel):
    key_id: str
    scopes: list[str]
    created_at: TimeText | None = None
    expires_at: TimeText | None
    revoked_at: TimeText | None = None


class NewKeyView(BaseModel):
    """A new key."""

    key_id: str
    key: str = Field(description="shown this once; only a hash of it is kept")
    owner: str
    scopes: list[str]
    expires_at: TimeText | None


class KeyList(BaseModel):
    keys: list[KeyView]


class SettingsBody(BaseModel):
    """What is set; the rest keeps its value."""

    reorder_ms: SettingMs | None = Field(default=None, description="how long a tick may wait for those before it")
    reference_age_ms: dict[Window, SettingMs] = Field(
        default_factory=dict, description="how much older than its window a reference price may be"
    )
    max_ahead_ms: SettingMs | None = Field(default=None, description="how far a tick may be ahead of its feed; 0: any")


class NewFeed(BaseModel):
    """A source of prices with one clock."""

    feed: FeedName
    buckets: Annotated[StrictInt, Field(ge=1, le=1_024)] = 16
    clock_mode: Literal["live", "replay"]
    settings: SettingsBody = Field(default_factory=SettingsBody)


class NewInstrument(BaseModel):
    symbol: Symbol
    feed: FeedName
    decimals: Annotated[StrictInt, Field(ge=0, le=MAX_DECIMALS)]


class NewSplit(BaseModel):
    """new_shares for old_shares from an event time on: 2 for 1 halves the price."""

    symbol: Symbol
    effective_from: TimeMs
    new_shares: Annotated[StrictInt, Field(ge=1, le=MAX_SHARES)]
    old_shares: Annotated[StrictInt, Field(ge=1, le=MAX_SHARES)]


class ResumeBody(BaseModel):
    """End the suppression that a late split began."""

    symbol: Symbol


class RoutingBody(BaseModel):
    """How many shards of its own a symbol has; 1: those of its bucket."""

    symbol: Symbol
    shards: Annotated[StrictInt, Field(ge=1, le=1_024)]


class Declared(BaseModel):
    """Taken. `control_id` is the change's place in the feed's outbox; null: nothing has changed."""

    control_id: int | None
