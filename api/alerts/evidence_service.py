"""A trigger's evidence, recomputed twice: from what is stored with it, and from the price archive."""

from __future__ import annotations

from typing import Final

from api.alerts.archived_prices import ArchivedPrices
from api.alerts.evidence_check import Prices, Verdict, check, stored_prices
from api.alerts.schemas import CheckView, DelaysView, EvidenceView
from api.alerts.service import AlertService
from api.alerts.views import trigger_view
from api.database import PostgresDatabase
from api.ports import AlertRecord
from api.principal import Principal
from api.problems import ProblemError, not_found
from contracts.prices import PriceError, format_price
from contracts.trigger import Evidence
from sql.evidence_store import EvidenceContext

NOT_TRIGGERED: Final = "The alert has not triggered: it is {}."


class EvidenceService:
    """Every error is a ProblemError or the database's own."""

    def __init__(self, database: PostgresDatabase, alerts: AlertService, archive: ArchivedPrices) -> None:
        self._database, self._alerts, self._archive = database, alerts, archive

    def find(self, principal: Principal, alert_id: int) -> EvidenceView:
        """Conflict when the alert has not triggered; not found when it is nobody's or another owner's."""
        alert = self._alerts.find(principal, alert_id)
        if alert.trigger is None:
            raise ProblemError("conflict", NOT_TRIGGERED.format(alert.shown_status))
        context, splits = self._database.transact(
            lambda t: (t.evidence.context(principal.owner_id, alert_id), t.evidence.splits(alert.symbol))
        )
        if context is None:  # archived between the two reads
            raise not_found("alert")
        evidence = Evidence.model_validate(alert.trigger)
        try:
            prices = stored_prices(alert, evidence)
        except PriceError:
            return _view(alert, evidence, Verdict(False, ["The evidence lacks a price."]), _unknown(""), context)
        found, why = self._archive.find(context.feed, context.buckets, alert.symbol, evidence, prices)
        stored = check(alert, evidence, prices, splits)
        if found is None:
            return _view(alert, evidence, stored, _unknown(why), context)
        archived = check(alert, evidence, found, splits)
        archived.why.extend(_differences(alert, prices, found))
        return _view(alert, evidence, stored, archived, context)


def _unknown(why: str) -> Verdict:
    return Verdict(None, [why] if why else [])


def _differences(alert: AlertRecord, stored: Prices, archived: Prices) -> list[str]:
    """A price that the archive has otherwise and that crosses all the same: said, though it holds."""
    pairs = (("price", stored.price, archived.price), ("price before", stored.before, archived.before))
    return [
        f"The archive's {name} is {format_price(there, alert.decimals)}, not {format_price(here, alert.decimals)}."
        for name, here, there in pairs
        if here != there
    ]


def _view(
    alert: AlertRecord, evidence: Evidence, stored: Verdict, archived: Verdict, context: EvidenceContext
) -> EvidenceView:
    published, delivered = context.published_at_ms, context.delivered_at_ms
    committed = evidence.finalized_at_ms
    return EvidenceView(
        alert_id=alert.alert_id,
        symbol=alert.symbol,
        series_version=alert.series_version,
        trigger=trigger_view(alert),
        log_epoch=evidence.epoch,
        log_position=evidence.position,
        current_change=None if stored.change is None else str(stored.change),
        stored=CheckView(holds=stored.holds, why=stored.why),
        archive=CheckView(holds=archived.holds, why=archived.why),
        delays=DelaysView(
            event_to_commit_ms=committed - evidence.event_time_ms,
            commit_to_publish_ms=None if published is None else published - committed,
            commit_to_delivery_ms=None if delivered is None else delivered - committed,
        ),
    )
