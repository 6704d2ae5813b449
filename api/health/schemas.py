"""State of the installation on the wire."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from api.times import TimeText


class FeedStatus(BaseModel):
    """How far one feed has been finalized, and what its checks have refused."""

    feed: str
    clock_mode: Literal["live", "replay"]
    frontier: TimeText | None = Field(
        description="up to here every shard is finalized; null before the first heartbeat"
    )
    newest_frontier: TimeText | None = Field(description="of the shard that is furthest")
    rejected: int
    duplicate: int
    late: int
    gaps: int = Field(description="shards that wait for numbers nobody has filled: an operator is needed")


class Backlog(BaseModel):
    """Rows that wait in each outbox, counted up to 100 000."""

    rule_commands: int
    triggers: int
    deliveries: int


class OwnerStatus(BaseModel):
    name: str
    live_alerts: int
    max_live_alerts: int


class StatusView(BaseModel):
    """The feeds, the backlog, and your quota."""

    now: TimeText
    version: str
    owner: OwnerStatus
    feeds: list[FeedStatus]
    backlog: Backlog


class LatestPrice(BaseModel):
    """As the feed printed it, a few seconds old at most; alerts are decided elsewhere, tick by tick."""

    price: str = Field(examples=["187.23"])
    time: TimeText = Field(description="event time")


class InstrumentView(BaseModel):
    symbol: str
    feed: str
    decimals: int = Field(description="of its prices; a target may have as many")
    latest: LatestPrice | None = Field(description="null before the first price")


class InstrumentPage(BaseModel):
    """By symbol. `next_cursor` is null on the last page."""

    instruments: list[InstrumentView]
    next_cursor: str | None


class Liveness(BaseModel):
    ok: bool
