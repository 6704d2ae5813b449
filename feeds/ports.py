"""What the gateway asks of its database. `sql/feed_store.py` is the Postgres adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class LeaseLostError(RuntimeError):
    """Another gateway has taken the feed; this one must stop serving it."""

    def __init__(self, feed: str, lease: int) -> None:
        super().__init__(f"feed {feed}: lease {lease} is over, another gateway serves it now")
        self.feed, self.lease = feed, lease


class StoreAwayError(RuntimeError):
    """The database does not answer; nothing of the failed call may be taken as done or not done."""


@dataclass(frozen=True, slots=True)
class FeedRow:
    """A row of `feeds`: `clock_mode` is live or replay, `settings` the JSON object as stored.

    signs_of_life: raised with every checkpoint of whoever serves the feed.
    """

    feed: str
    buckets: int
    clock_mode: str
    settings: Mapping[str, Any]
    lease: int
    signs_of_life: int = 0


@dataclass(frozen=True, slots=True)
class TakenFeed:
    """A feed under a new lease. `checkpoint` is the JSON that the last gateway saved (or this one's first)."""

    row: FeedRow
    checkpoint: str


@dataclass(frozen=True, slots=True)
class PendingControl:
    """A numbered row of `feed_controls` that is not known to be in the log. bucket None: every bucket."""

    control_id: int
    control_number: int
    bucket: int | None
    payload: bytes


class FeedStore(Protocol):
    """Each call is one transaction. All raise StoreAwayError when the database does not answer."""

    def list_feeds(self) -> Sequence[FeedRow]:
        """Every feed of the environment."""
        ...

    def take_lease(self, feed: str, first_checkpoint: str) -> TakenFeed | None:
        """Raise the feed's lease by one and own it; without a checkpoint it gets the first one. None: no such feed."""
        ...

    def save_checkpoints(self, leases: Mapping[str, int], checkpoints: Mapping[str, str]) -> None:
        """Feed -> JSON, with a sign of life; a feed whose lease is not the given one any more keeps what it has."""
        ...

    def list_instruments(self, feed: str) -> Mapping[str, int]:
        """Symbol -> decimals."""
        ...

    def feeds_with_controls(self, feeds: Sequence[str]) -> Sequence[str]:
        """Which of these have controls that are not marked as published."""
        ...

    def number_controls(self, feed: str, lease: int, limit: int) -> Sequence[PendingControl]:
        """Give committed rows their numbers (dense per feed, by control_id among those visible); those not
        published, oldest number first, at most `limit`. Raises LeaseLostError."""
        ...

    def mark_published(self, feed: str, lease: int, control_ids: Sequence[int]) -> None:
        """Raises LeaseLostError; then nothing is marked."""
        ...

    def close(self) -> None: ...
