"""An alert's lifecycle: one table, from which the code, the SQL's tests and the diagram in the docs are made."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from contracts.vocabulary import Status


class Event(StrEnum):
    """What can happen to an alert once it exists (it begins PENDING, with a create command)."""

    ACTIVATE = "activate"  # the matcher holds the rule of this version
    TRIGGER = "trigger"  # a claim within the alert's lifetime
    REFUSE = "refuse"  # a claim of this version outside its lifetime: the matcher has let go of the rule
    CANCEL = "cancel"
    EXPIRE = "expire"
    PAUSE = "pause"
    RESUME = "resume"


class Cause(StrEnum):
    """Who brings an event about."""

    CONSUMER = "consumer"  # from candidates.v1
    SWEEPER = "sweeper"
    OWNER = "owner"  # through the API


CAUSES: Final[Mapping[Event, Cause]] = MappingProxyType(
    {
        Event.ACTIVATE: Cause.CONSUMER,
        Event.TRIGGER: Cause.CONSUMER,
        Event.REFUSE: Cause.CONSUMER,
        Event.EXPIRE: Cause.SWEEPER,
        Event.CANCEL: Cause.OWNER,
        Event.PAUSE: Cause.OWNER,
        Event.RESUME: Cause.OWNER,
    }
)

FIRST: Final = Status.PENDING

TRANSITIONS: Final[Mapping[tuple[Status, Event], Status]] = MappingProxyType(
    {
        (Status.PENDING, Event.ACTIVATE): Status.ACTIVE,
        (Status.PENDING, Event.CANCEL): Status.CANCELLED,
        (Status.PENDING, Event.EXPIRE): Status.EXPIRED,
        (Status.ACTIVE, Event.TRIGGER): Status.TRIGGERED,
        (Status.ACTIVE, Event.REFUSE): Status.PENDING,
        (Status.ACTIVE, Event.CANCEL): Status.CANCELLED,
        (Status.ACTIVE, Event.EXPIRE): Status.EXPIRED,
        (Status.ACTIVE, Event.PAUSE): Status.PAUSED,
        (Status.PAUSED, Event.RESUME): Status.PENDING,
        (Status.PAUSED, Event.CANCEL): Status.CANCELLED,
        (Status.PAUSED, Event.EXPIRE): Status.EXPIRED,
    }
)

TERMINAL: Final = frozenset(Status) - {status for status, _ in TRANSITIONS}
LIVE: Final = frozenset(Status) - TERMINAL  # counted against the owner's quota, still expiring


def may(status: Status, event: Event) -> Status | None:
    """The status that `event` leads to, or None when it changes nothing from here."""
    return TRANSITIONS.get((status, event))


def sources(event: Event) -> frozenset[Status]:
    """The statuses from which `event` moves an alert."""
    return frozenset(status for status, caused in TRANSITIONS if caused is event)


def diagram() -> str:
    """The table as a mermaid state diagram, each edge labelled with event and cause."""
    lines = ["stateDiagram-v2", f"    [*] --> {FIRST}: create (owner)"]
    lines += [f"    {a} --> {b}: {event} ({CAUSES[event]})" for (a, event), b in TRANSITIONS.items()]
    lines += [f"    {status} --> [*]" for status in Status if status in TERMINAL]
    return "\n".join(lines)


def page() -> str:
    """docs/lifecycle.md, whole."""
    return (
        "# An alert's lifecycle\n\n"
        "Made from `finalizer/domain/lifecycle.py`; do not edit. After a change there:\n"
        "`.venv/bin/python -m finalizer.domain.lifecycle > docs/lifecycle.md`.\n\n"
        f"```mermaid\n{diagram()}\n```\n\n"
        "Each new activation raises the alert's version; commands and claims carry it, so one that belongs to an\n"
        "earlier activation changes nothing. Whoever commits first of trigger, cancel and expire wins.\n"
    )


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201  # the output is the page
