"""What a trigger says: the outbox row's payload, the value of triggers.v1, the data of a webhook."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from contracts.event_time import MAX_EVENT_TIME_MS

# A message that any reader can store and show: what is beyond makes it unreadable, not its reader fail.
_MAX_ID: Final = (1 << 63) - 1  # Postgres bigint
Id = Annotated[int, Field(ge=1, le=_MAX_ID)]
WallTimeMs = Annotated[int, Field(ge=0, le=MAX_EVENT_TIME_MS)]


class Evidence(BaseModel):
    """Why it fired, so that its owner can check it. Prices are plain decimal texts as printed by the feed.

    A change carries reference_* and *_bps, a price alert previous_price and its time. *_bps are floors of the signed
    change: a loss of 7.2651 % is -727, which texts tell as "fell 7.26%" (contracts.trigger_words).
    Times *_ms are event time in epoch milliseconds, but finalized_at_ms, which is the wall clock's.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    event_time_ms: int
    sequence: int | None  # None: the source has none
    session: int
    price: str
    window: str | None
    fired: Literal["UP", "DOWN", "ABOVE", "BELOW"]
    reference_time_ms: int | None = None
    reference_price: str | None = None
    previous_bps: int | None = None
    current_bps: int | None = None
    previous_price: str | None = None
    previous_event_time_ms: int | None = None
    # the claim's place in its shard's log, and the activation's version
    epoch: int
    position: int
    version: int
    active_from_event_time_ms: int
    finalized_at_ms: WallTimeMs


class TriggerMessage(BaseModel):
    """One alert that has fired. `channel_ids` is settled when it fires: later channels don't get it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    trigger_id: Annotated[str, Field(pattern=r"^[0-9A-Za-z_]{1,100}$")]
    alert_id: Id
    owner_id: Id
    symbol: str
    kind: Literal["change", "price"]
    window: str | None
    direction: Literal["UP", "DOWN", "EITHER", "ABOVE", "BELOW"]
    threshold_bps: int | None  # change
    target: str | None  # price
    note: str
    created_at_ms: int
    expires_at_ms: int
    channel_ids: list[Id]
    evidence: Evidence


class WebhookEvent(BaseModel):
    """The body of a webhook, as Standard Webhooks shapes it; `timestamp`: when it was finalized, ISO 8601 in UTC."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["alert.triggered"] = "alert.triggered"
    timestamp: str
    data: TriggerMessage
