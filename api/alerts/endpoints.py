"""/v1/alerts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from starlette.concurrency import run_in_threadpool

from api.alerts.activation import ActivationWaiter
from api.alerts.evidence_service import EvidenceService
from api.alerts.schemas import (
    AlertPage,
    AlertView,
    DeliveryList,
    EvidenceView,
    NewAlertRequest,
    ShownStatus,
    SymbolText,
)
from api.alerts.service import AlertService
from api.alerts.views import alert_view, as_created, delivery_view
from api.authentication import Authenticated
from api.identifiers import parse_id
from api.openapi import problems
from api.settings import MAX_WAIT_SECONDS
from api.texts import Line

IdempotencyKey = Annotated[
    Line | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="any text of yours; the same request with the same key creates once",
    ),
]
Wait = Annotated[
    float,
    Query(ge=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False, description="seconds to wait for the activation at most"),
]
_CREATED: dict[int | str, dict[str, Any]] = {
    201: {
        "headers": {
            "Location": {"schema": {"type": "string"}, "description": "of the alert"},
            "Idempotency-Replayed": {
                "schema": {"type": "string", "enum": ["true"]},
                "description": "an earlier request with this Idempotency-Key made the alert",
            },
        }
    }
}


def alert_routes(service: AlertService, evidence: EvidenceService, waiter: ActivationWaiter) -> APIRouter:
    """The routes; handlers that touch the database run in threads."""
    router = APIRouter(prefix="/v1/alerts", tags=["alerts"])

    @router.post(
        "",
        status_code=201,
        operation_id="createAlert",
        responses={**_CREATED, **problems(400, 401, 403, 413, 422, 503)},
    )
    async def create_alert(
        principal: Authenticated,
        body: NewAlertRequest,
        response: Response,
        wait: Wait = 0,
        idempotency_key: IdempotencyKey = None,
    ) -> AlertView:
        """Create an alert. It is PENDING until the matcher holds it; `wait` waits for that."""
        created = await run_in_threadpool(service.create, principal, body, idempotency_key)
        alert_id = created.alert.alert_id
        response.headers["Location"] = f"/v1/alerts/{alert_id}"
        if created.replayed:
            response.headers["Idempotency-Replayed"] = "true"
        if wait > 0:
            await waiter.wait(alert_id, wait)
            return alert_view(await run_in_threadpool(service.find, principal, alert_id))
        view = alert_view(created.alert)
        return as_created(view) if created.replayed else view

    @router.get("", operation_id="listAlerts", responses=problems(401, 422, 503))
    def list_alerts(
        principal: Authenticated,
        status: Annotated[
            ShownStatus | None, Query(description="ACTIVE leaves out what is past its expires_at")
        ] = None,
        symbol: Annotated[SymbolText | None, Query()] = None,
        cursor: Annotated[str | None, Query(max_length=100, description="next_cursor of the page before")] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> AlertPage:
        """Your alerts, newest first, in pages that stay stable while alerts come and end."""
        found, next_cursor = service.page(principal, status, symbol, cursor, limit)
        return AlertPage.model_construct(alerts=[alert_view(alert) for alert in found], next_cursor=next_cursor)

    @router.get("/{alert_id}", operation_id="getAlert", responses=problems(401, 404, 503))
    def get_alert(principal: Authenticated, alert_id: str) -> AlertView:
        """One alert, with the evidence once it has triggered."""
        return alert_view(service.find(principal, parse_id(alert_id, "alert")))

    @router.get("/{alert_id}/deliveries", operation_id="listDeliveries", responses=problems(401, 404, 503))
    def list_deliveries(principal: Authenticated, alert_id: str) -> DeliveryList:
        """How far its message has come on each channel."""
        rows = service.deliveries(principal, parse_id(alert_id, "alert"))
        return DeliveryList(deliveries=[delivery_view(row) for row in rows])

    @router.get("/{alert_id}/evidence", operation_id="getEvidence", responses=problems(401, 404, 409, 503))
    def get_evidence(principal: Authenticated, alert_id: str) -> EvidenceView:
        """Why it fired, recomputed from the stored prices and from the price archive, and how long each step took."""
        return evidence.find(principal, parse_id(alert_id, "alert"))

    @router.delete("/{alert_id}", operation_id="cancelAlert", responses=problems(401, 404, 503))
    def cancel_alert(principal: Authenticated, alert_id: str) -> AlertView:
        """Cancel it, any number of times. One that has triggered or expired before stays what it is."""
        return alert_view(service.cancel(principal, parse_id(alert_id, "alert")))

    @router.post("/{alert_id}/pause", operation_id="pauseAlert", responses=problems(401, 404, 409, 503))
    def pause_alert(principal: Authenticated, alert_id: str) -> AlertView:
        """Take an ACTIVE alert out of evaluation. It still expires."""
        return alert_view(service.pause(principal, parse_id(alert_id, "alert")))

    @router.post("/{alert_id}/resume", operation_id="resumeAlert", responses=problems(401, 404, 409, 503))
    def resume_alert(principal: Authenticated, alert_id: str) -> AlertView:
        """Bring a PAUSED alert back as PENDING: a new activation, which prices before it can't trigger."""
        return alert_view(service.resume(principal, parse_id(alert_id, "alert")))

    return router
