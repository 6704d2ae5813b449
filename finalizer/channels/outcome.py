"""What is sent, and what came of one try."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

MAX_SEND_SECONDS: Final = 60.0  # the longest of any channel; a claim's lease must outlast it


@dataclass(frozen=True, slots=True)
class Delivery:
    """One claimed row: a trigger for one channel. `body` is the same bytes on every try, `token` names this claim."""

    trigger_id: str
    channel_id: int
    owner_id: int
    kind: str
    address: str
    secret: bytes | None  # sealed
    body: bytes
    attempts: int  # this one included
    token: int
    disabled: bool = False  # the channel, since the row was made

    @property
    def delivery_id(self) -> str:
        """Stable over every try, so that a receiver can drop a repeat."""
        return f"{self.trigger_id}_{self.channel_id}"


class Result(StrEnum):
    """How a try ended."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`reason`: one sentence for the owner, without secrets. `retry_after_seconds`: the receiver's own wish."""

    result: Result
    reason: str = ""
    retry_after_seconds: float | None = None
    disable_channel: bool = False


class Channel(Protocol):
    """Sends within MAX_SEND_SECONDS and never raises for what a receiver did."""

    def send(self, delivery: Delivery) -> Outcome: ...


def delivered() -> Outcome:
    return Outcome(Result.DELIVERED)


def retry(reason: str, after_seconds: float | None = None) -> Outcome:
    return Outcome(Result.RETRY, reason, after_seconds)


def dead(reason: str, *, disable_channel: bool = False) -> Outcome:
    return Outcome(Result.DEAD, reason, disable_channel=disable_channel)
