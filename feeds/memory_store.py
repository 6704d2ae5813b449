"""The gateway's database in memory, for tests and simulation: what `sql/feed_store.py` does, without a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from feeds.ports import FeedRow, LeaseLostError, PendingControl, TakenFeed


@dataclass(slots=True)
class _Control:
    feed: str
    control_id: int
    bucket: int | None
    payload: bytes
    number: int | None = None
    published: bool = False


@dataclass(slots=True)
class MemoryFeedStore:
    """FeedStore. Any number of gateways may share it."""

    rows: dict[str, FeedRow] = field(default_factory=dict)
    checkpoints: dict[str, str] = field(default_factory=dict)
    instruments: dict[str, dict[str, int]] = field(default_factory=dict)
    _controls: list[_Control] = field(default_factory=list)
    _last_number: dict[str, int] = field(default_factory=dict)

    def declare_feed(self, feed: str, buckets: int, clock_mode: str, **settings: Any) -> None:
        self.rows[feed] = FeedRow(feed, buckets, clock_mode, settings, 0)

    def declare_instrument(self, feed: str, symbol: str, decimals: int) -> None:
        """Without a control: use `add_control` for that."""
        self.instruments.setdefault(feed, {})[symbol] = decimals

    def add_control(self, feed: str, payload: bytes, bucket: int | None = None) -> int:
        control = _Control(feed, len(self._controls) + 1, bucket, payload)
        self._controls.append(control)
        return control.control_id

    def unpublished(self, feed: str) -> list[int]:
        return [c.control_id for c in self._controls if c.feed == feed and not c.published]

    def list_feeds(self) -> Sequence[FeedRow]:
        return [self.rows[feed] for feed in sorted(self.rows)]

    def take_lease(self, feed: str, first_checkpoint: str) -> TakenFeed | None:
        if feed not in self.rows:
            return None
        row = self.rows[feed]
        self.rows[feed] = replace(row, lease=row.lease + 1, signs_of_life=row.signs_of_life + 1)
        return TakenFeed(self.rows[feed], self.checkpoints.setdefault(feed, first_checkpoint))

    def save_checkpoints(self, leases: Mapping[str, int], checkpoints: Mapping[str, str]) -> None:
        for feed, checkpoint in checkpoints.items():
            if feed in self.rows and self.rows[feed].lease == leases[feed]:
                self.checkpoints[feed] = checkpoint
                self.rows[feed] = replace(self.rows[feed], signs_of_life=self.rows[feed].signs_of_life + 1)

    def list_instruments(self, feed: str) -> Mapping[str, int]:
        return dict(self.instruments.get(feed, {}))

    def feeds_with_controls(self, feeds: Sequence[str]) -> Sequence[str]:
        return sorted({c.feed for c in self._controls if c.feed in feeds and not c.published})

    def number_controls(self, feed: str, lease: int, limit: int) -> Sequence[PendingControl]:
        self._check(feed, lease)
        pending = [c for c in self._controls if c.feed == feed and not c.published]
        for control in [c for c in pending if c.number is None][:limit]:
            control.number = self._last_number[feed] = self._last_number.get(feed, 0) + 1
        numbered = sorted(((c.number, c) for c in pending if c.number is not None), key=lambda pair: pair[0])
        return [PendingControl(c.control_id, number, c.bucket, c.payload) for number, c in numbered[:limit]]

    def mark_published(self, feed: str, lease: int, control_ids: Sequence[int]) -> None:
        self._check(feed, lease)
        for control in self._controls:
            control.published |= control.control_id in control_ids

    def _check(self, feed: str, lease: int) -> None:
        if feed not in self.rows or self.rows[feed].lease != lease:
            raise LeaseLostError(feed, lease)

    def close(self) -> None: ...
