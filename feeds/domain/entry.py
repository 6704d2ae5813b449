"""What a source hands over: one parsed entry with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from contracts.dead_letter import Reason


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an entry (or a part of it) can't be taken."""

    reason: Reason
    detail: str


class SourceEntry(NamedTuple):
    """One entry of a source. `body` is the parsed JSON value, or a Refusal when the source could not read it.

    `position` is its place in `partition`, from 0 and rising; the next entry's is higher.
    """

    partition: str
    position: int
    body: object
    raw: bytes
