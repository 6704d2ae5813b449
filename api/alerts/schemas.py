"""Alerts on the wire."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator

from api.texts import Text
from api.times import TimeMs, TimeText
from contracts.trigger_words import bps_to_percent

MAX_THRESHOLD_BPS: Final = 10_000_000  # +100 000 %
MAX_DOWN_BPS: Final = 9_999  # a price above zero has never lost all of itself
MAX_NOTE_LENGTH: Final = 5_000
MAX_CHANNELS: Final = 20
MAX_ID: Final = (1 << 63) - 1
_PERCENT: Final = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,18}))?", re.ASCII)

ChannelId = Annotated[StrictInt, Field(ge=1, le=MAX_ID)]


def percent_to_bps(text: str) -> int:
    """Exact basis points of a percentage in plain decimals. Raises ValueError in one sentence."""
    found = _PERCENT.fullmatch(text)
    if not found:
        raise ValueError('write a percentage as plain decimal text, e.g. "5" or "2.25"')
    fraction = (found[2] or "").rstrip("0")
    if len(fraction) > 2:
        raise ValueError("a percentage has at most 2 decimals: thresholds are whole basis points")
    return int(found[1] + fraction.ljust(2, "0"))


class _NewAlert(BaseModel):
    model_config = ConfigDict(extra="ignore", str_max_length=MAX_NOTE_LENGTH)

    symbol: Annotated[StrictStr, Field(min_length=1, max_length=64, examples=["AAPL"])]
    expires_at: TimeMs | None = Field(
        default=None, description="event time from which it can't trigger; default: 30 × 24 h after created_at"
    )
    created_at: TimeMs | None = Field(
        default=None, description="only for keys of scope admin (replays of old prices); default: the market clock"
    )
    note: Text = Field(default="", max_length=MAX_NOTE_LENGTH, description="comes along in every message")
    channels: list[ChannelId] = Field(
        default_factory=list,
        max_length=MAX_CHANNELS,
        description="channel ids; empty: every channel you have when it triggers",
    )


class NewChangeAlert(_NewAlert):
    """Tell me once when the rolling change over a window crosses a threshold."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "change", "symbol": "AAPL", "window": "1h", "direction": "UP", "threshold_percent": "5"}
            ]
        }
    )

    kind: Literal["change"]
    window: Literal["1m", "1h", "1d", "1w", "1mo", "1y"]
    direction: Literal["UP", "DOWN", "EITHER"]
    threshold_bps: Annotated[StrictInt, Field(ge=1, le=MAX_THRESHOLD_BPS)] | None = Field(
        default=None, description="basis points; this or threshold_percent", examples=[500]
    )
    threshold_percent: Annotated[StrictStr, Field(max_length=32)] | None = Field(
        default=None, description="the same in per cent, as plain decimal text with at most 2 decimals", examples=["5"]
    )

    @model_validator(mode="after")
    def _one_threshold(self) -> NewChangeAlert:
        if (self.threshold_bps is None) == (self.threshold_percent is None):
            raise ValueError("give threshold_bps or threshold_percent, one of them")
        bps = self.bps()
        if not 1 <= bps <= MAX_THRESHOLD_BPS:
            raise ValueError(
                f"a threshold is 0.01 % to {bps_to_percent(MAX_THRESHOLD_BPS)} %, greater than zero in every direction"
            )
        if self.direction == "DOWN" and bps > MAX_DOWN_BPS:
            raise ValueError("a price can't fall by 100 % or more: this alert could never trigger")
        return self

    def bps(self) -> int:
        """The threshold in basis points, whichever way it was written."""
        if self.threshold_bps is not None:
            return self.threshold_bps
        return percent_to_bps(self.threshold_percent or "")


class NewPriceAlert(_NewAlert):
    """Tell me once when the price crosses a target."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "price", "symbol": "BTC", "direction": "ABOVE", "target": "70000"}]}
    )

    kind: Literal["price"]
    direction: Literal["ABOVE", "BELOW"]
    target: Annotated[
        StrictStr, Field(max_length=40, description="plain decimal text, exact in the instrument's decimals")
    ]


NewAlertRequest = Annotated[NewChangeAlert | NewPriceAlert, Field(discriminator="kind")]


ShownStatus = Literal["PENDING", "ACTIVE", "PAUSED", "TRIGGERED", "CANCELLED", "EXPIRED", "EXPIRING"]


class TriggerView(BaseModel):
    """What happened, in words and with the numbers to check it by: prices as the feed printed them."""

    summary: str = Field(
        examples=["AAPL rose 5.02% in 1 hour: 100 at 2026-03-01T09:30:00.000Z → 105.02 at 2026-03-01T10:30:00.000Z"]
    )
    fired: Literal["UP", "DOWN", "ABOVE", "BELOW"]
    event_time: TimeText
    price: str
    sequence: int | None
    session: int
    reference_time: TimeText | None = Field(description="of a change")
    reference_price: str | None
    previous_bps: int | None = Field(description="floor of the signed change at the tick before")
    current_bps: int | None = Field(description="floor of the signed change: -727 where the summary says fell 7.26%")
    previous_time: TimeText | None = Field(description="of a price alert: the tick before")
    previous_price: str | None
    finalized_at: TimeText


class AlertView(BaseModel):
    """An alert."""

    alert_id: int
    symbol: str
    kind: Literal["change", "price"]
    window: str | None
    direction: str
    threshold_bps: int | None
    threshold_percent: str | None
    target: str | None
    note: str
    channels: list[int]
    status: ShownStatus = Field(
        description=(
            "EXPIRING: past expires_at, but its end is not finalized yet; "
            "it becomes EXPIRED, or TRIGGERED by an earlier price"
        )
    )
    version: int
    series_version: int = Field(description="how many splits of the symbol the target was written after")
    created_at: TimeText
    expires_at: TimeText
    active_from: TimeText | None
    ended_at: TimeText | None
    trigger: TriggerView | None


class CheckView(BaseModel):
    """Whether the crossing follows from these prices, recomputed in whole numbers."""

    holds: bool | None = Field(description="null: what there is can't decide; `why` says what is missing")
    why: list[str] = Field(description="each thing that is wrong, missing or different, in a sentence")


class DelaysView(BaseModel):
    """Milliseconds. The event time is the feed's clock, all others this system's, so the first may even be negative."""

    event_to_commit_ms: int = Field(description="from the price's event time to the decision: jobs and finalizer")
    commit_to_publish_ms: int | None = Field(description="to the message in triggers.v1; null: not yet")
    commit_to_delivery_ms: int | None = Field(description="to the first channel's acceptance; null: not yet")


class EvidenceView(BaseModel):
    """Why an alert fired, and whether that can be recomputed."""

    alert_id: int
    symbol: str
    series_version: int
    trigger: TriggerView
    log_epoch: int = Field(description="the claim's place in its shard's log")
    log_position: int
    current_change: str | None = Field(
        description="of a change: price / reference - 1, exact, as a fraction in lowest terms", examples=["251/5000"]
    )
    stored: CheckView = Field(description="from the prices that are stored with the alert")
    archive: CheckView = Field(description="from the prices that the archive has at those times")
    delays: DelaysView


class AlertPage(BaseModel):
    """Newest first. `next_cursor` is null on the last page."""

    alerts: list[AlertView]
    next_cursor: str | None


class DeliveryView(BaseModel):
    """One channel's share of a trigger."""

    trigger_id: str
    channel_id: int
    kind: str
    address: str
    status: Literal["PENDING", "SENDING", "DELIVERED", "DEAD"]
    attempts: int
    last_error: str | None
    next_attempt_at: TimeText | None = Field(description="null once it has ended")
    delivered_at: TimeText | None


class DeliveryList(BaseModel):
    deliveries: list[DeliveryView]


SymbolText = Annotated[str, Field(min_length=1, max_length=64)]
