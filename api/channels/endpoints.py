"""/v1/channels."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from api.authentication import Authenticated
from api.channels.schemas import ChannelList, ChannelView, NewChannelRequest, NewChannelView
from api.channels.service import ChannelService
from api.identifiers import parse_id
from api.openapi import problems
from api.ports import Row
from api.times import format_datetime


def channel_routes(service: ChannelService) -> APIRouter:
    router = APIRouter(prefix="/v1/channels", tags=["channels"])

    @router.post(
        "", status_code=201, operation_id="createChannel", responses=problems(400, 401, 403, 409, 413, 422, 503)
    )
    def create_channel(principal: Authenticated, body: NewChannelRequest) -> NewChannelView:
        """A mail address or a webhook. A webhook's secret is in this answer and nowhere else."""
        row, secret = service.create(principal, body)
        return NewChannelView(**_fields(row), secret=secret)

    @router.get("", operation_id="listChannels", responses=problems(401, 503))
    def list_channels(principal: Authenticated) -> ChannelList:
        """Your channels."""
        return ChannelList(channels=[ChannelView(**_fields(row)) for row in service.page(principal)])

    @router.delete("/{channel_id}", status_code=204, operation_id="deleteChannel", responses=problems(401, 404, 503))
    def delete_channel(principal: Authenticated, channel_id: str) -> Response:
        """Send nothing there any more. Idempotent; what was sent stays in the ledger."""
        service.disable(principal, parse_id(channel_id, "channel"))
        return Response(status_code=204)

    return router


def _fields(row: Row) -> dict[str, Any]:
    return {**row, "created_at": format_datetime(row["created_at"])}
