"""Alerts as stored, made into what goes over the wire."""

from __future__ import annotations

from typing import Final

from api.alerts.evidence import summarize
from api.alerts.schemas import AlertView, DeliveryView, TriggerView
from api.ports import AlertRecord, Row
from api.times import format_datetime, format_time_ms
from contracts.prices import format_price
from contracts.trigger import Evidence
from contracts.trigger_words import bps_to_percent
from contracts.vocabulary import Status

EVIDENCE_SHOWN: Final = {
    "fired",
    "price",
    "sequence",
    "session",
    "reference_price",
    "previous_bps",
    "current_bps",
    "previous_price",
}


def alert_view(alert: AlertRecord) -> AlertView:
    change = alert.kind == "change"
    active_from = alert.active_from_event_time_ms
    target = None if change else format_price(alert.threshold, alert.decimals)
    return AlertView.model_construct(
        alert_id=alert.alert_id,
        symbol=alert.symbol,
        kind=alert.kind,
        window=alert.window,
        direction=alert.direction,
        threshold_bps=alert.threshold if change else None,
        threshold_percent=bps_to_percent(alert.threshold) if change else None,
        target=target,
        note=alert.note,
        channels=alert.channel_ids,
        status=alert.shown_status,
        version=alert.version,
        series_version=alert.series_version,
        created_at=format_time_ms(alert.created_at_ms),
        expires_at=format_time_ms(alert.expires_at_ms),
        active_from=None if active_from is None else format_time_ms(active_from),
        ended_at=format_datetime(alert.ended_at),
        trigger=None if alert.trigger is None else trigger_view(alert),
    )


def trigger_view(alert: AlertRecord) -> TriggerView:
    """Of an alert that has triggered."""
    evidence = Evidence.model_validate(alert.trigger)
    change = alert.kind == "change"
    threshold_bps = alert.threshold if change else None
    target = None if change else format_price(alert.threshold, alert.decimals)
    return TriggerView(
        summary=summarize(alert.symbol, target, threshold_bps, evidence),
        event_time=format_time_ms(evidence.event_time_ms),
        finalized_at=format_time_ms(evidence.finalized_at_ms),
        reference_time=_time(evidence.reference_time_ms),
        previous_time=_time(evidence.previous_event_time_ms),
        **evidence.model_dump(include=EVIDENCE_SHOWN),
    )


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else format_time_ms(time_ms)


def as_created(view: AlertView) -> AlertView:
    """What the create answered at once, whatever has happened since: a replayed request gets the same body."""
    return view.model_copy(
        update={"status": str(Status.PENDING), "version": 1, "active_from": None, "ended_at": None, "trigger": None}
    )


def delivery_view(row: Row) -> DeliveryView:
    ended = row["status"] in ("DELIVERED", "DEAD")
    return DeliveryView(
        **{
            name: row[name]
            for name in ("trigger_id", "channel_id", "kind", "address", "status", "attempts", "last_error")
        },
        next_attempt_at=None if ended else format_datetime(row["next_attempt_at"]),
        delivered_at=format_datetime(row["delivered_at"]),
    )
