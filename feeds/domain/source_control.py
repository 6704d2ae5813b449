"""What a source may send beside ticks: heartbeats and the end of a replay, and markers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contracts.dead_letter import Reason
from contracts.frames_pb2 import Control
from feeds.domain.entry import Refusal
from feeds.domain.tick import read_event_time, shown

MAX_MARKER: Final = 1 << 63


def read_source_control(body: Mapping[str, Any], live: bool) -> Control | Refusal:
    """Of a body whose `type` is not a tick's."""
    kind = body["type"]
    if kind == "marker":
        return _read_marker(body.get("marker_id"))
    if kind not in ("heartbeat", "flush"):
        return Refusal(Reason.UNKNOWN_TYPE, f"type: {shown(kind)} is none of tick, heartbeat, flush, marker")
    if live:
        return Refusal(Reason.NOT_IN_LIVE_MODE, f"{kind}: a live feed's clock is the gateway's; use a replay feed")
    control = Control()
    if kind == "flush":
        control.flush.SetInParent()
        return control
    frontier_ms = read_event_time(body.get("ts"))
    if isinstance(frontier_ms, Refusal):
        return frontier_ms
    control.heartbeat.frontier_ms = frontier_ms
    return control


def _read_marker(marker_id: object) -> Control | Refusal:
    if type(marker_id) is not int or not 0 < marker_id < MAX_MARKER:
        return Refusal(Reason.BAD_MARKER, f"marker_id: {shown(marker_id)} is no whole number from 1 to 2^63 - 1")
    control = Control()
    control.marker.marker_id = marker_id
    return control
