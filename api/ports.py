"""What the API's services need of a database, as protocols: Postgres is one adapter (`sql/`), memory another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from contracts.vocabulary import Status

T = TypeVar("T")
Row = dict[str, Any]

EXPIRING: Final = "EXPIRING"  # shown, never stored: past expires_at by the market clock, the end not finalized yet


class IdempotencyKeyTakenError(Exception):
    """Another request created an alert under this key meanwhile: look it up in a new transaction."""


@dataclass(frozen=True, slots=True)
class InstrumentRoute:
    """What a create needs of its instrument. `frontier_ms` is the feed's finalized frontier, None before the first."""

    symbol: str
    feed: str
    decimals: int
    shards: int
    buckets: int
    clock_mode: str
    frontier_ms: int | None
    next_alert_id: int


@dataclass(frozen=True, slots=True)
class FeedFrontier:
    """How far a feed is finalized: the least frontier of its shards."""

    feed: str
    clock_mode: str
    frontier_ms: int | None


@dataclass(frozen=True, slots=True)
class NewAlert:
    """A checked alert on its way into the database. `threshold` is bps or the scaled target."""

    alert_id: int
    owner_id: int
    symbol: str
    shard: str
    kind: str
    window: str | None
    direction: str
    threshold: int
    decimals: int
    note: str
    channel_ids: list[int]
    created_at_ms: int
    expires_at_ms: int
    idempotency_key: str | None
    request_hash: bytes | None


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """One alert as stored; `shown_status` is `status`, or EXPIRING."""

    alert_id: int
    owner_id: int
    symbol: str
    kind: str
    window: str | None
    direction: str
    threshold: int
    decimals: int
    note: str
    channel_ids: list[int]
    created_at_ms: int
    expires_at_ms: int
    series_version: int
    status: Status
    shown_status: str
    version: int
    active_from_event_time_ms: int | None
    ended_at: datetime | None
    trigger: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class AlertFilter:
    """What a page is about. `status` is a stored status or EXPIRING; None: all."""

    status: str | None
    symbol: str | None


class AlertStore(Protocol):
    """Alerts in one transaction, every query scoped to their owner."""

    def find_instrument(self, spellings: list[str]) -> InstrumentRoute | None:
        """The first of `spellings` that is an instrument, its routing locked until the transaction ends."""
        ...

    def resolve_symbol(self, spellings: list[str]) -> str | None:
        """The first of `spellings` that is an instrument."""
        ...

    def feed_frontiers(self) -> list[FeedFrontier]: ...

    def insert(self, alert: NewAlert) -> AlertRecord | None:
        """The alert PENDING with its create command, counted against the quota; None when that is used up.

        Raises IdempotencyKeyTakenError when another request committed under the same key first.
        """
        ...

    def find_idempotent(self, owner_id: int, idempotency_key: str) -> tuple[bytes, int] | None:
        """(request hash, alert_id) of the create that used this key."""
        ...

    def find(self, owner_id: int, alert_id: int, clocks_ms: Mapping[str, int]) -> AlertRecord | None:
        """An owner's alert; `clocks_ms` is the market clock of each feed."""
        ...

    def page(
        self, owner_id: int, shown: AlertFilter, before_alert_id: int, limit: int, clocks_ms: Mapping[str, int]
    ) -> list[AlertRecord]:
        """At most `limit` alerts below `before_alert_id`, newest first."""
        ...

    def statuses(self, alert_ids: Collection[int]) -> dict[int, Status]:
        """Of any owner's; alerts that don't exist are left out."""
        ...

    def cancel(self, owner_id: int, alert_id: int, from_statuses: Collection[Status]) -> bool:
        """End it as CANCELLED with a remove command and give its place in the quota back; False: nothing moved."""
        ...

    def pause(self, owner_id: int, alert_id: int, from_statuses: Collection[Status]) -> bool:
        """To PAUSED with a remove command to each shard that holds the rule; False: nothing moved."""
        ...

    def resume(self, owner_id: int, alert_id: int, from_statuses: Collection[Status]) -> bool:
        """To PENDING under a new version, in the shard that the routing says by now, with a create command there.

        False: nothing moved.
        """
        ...

    def deliveries(self, owner_id: int, alert_id: int) -> list[Row]:
        """Rows of `deliveries` with their channel, by channel_id, a bounded number."""
        ...


class ChannelStore(Protocol):
    """Channels in one transaction. Rows: channel_id, kind, address, created_at."""

    def insert(self, owner_id: int, kind: str, address: str, secret: bytes | None, max_channels: int) -> Row | None:
        """The new (or re-enabled) channel; None: it exists already, or the owner has `max_channels` of them."""
        ...

    def find_address(self, owner_id: int, kind: str, address: str) -> int | None:
        """channel_id of the owner's enabled channel with this address."""
        ...

    def page(self, owner_id: int, limit: int) -> list[Row]: ...

    def disable(self, owner_id: int, channel_id: int) -> bool:
        """Idempotent; False when the owner has no such channel."""
        ...

    def missing(self, owner_id: int, channel_ids: Collection[int]) -> list[int]:
        """Those of `channel_ids` that are not enabled channels of the owner."""
        ...


class Transaction(Protocol):
    """An open transaction."""

    @property
    def alerts(self) -> AlertStore: ...

    @property
    def channels(self) -> ChannelStore: ...


class Database(Protocol):
    """Where transactions come from. Errors of the database itself are the adapter's own."""

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one transaction and commit it.

        A deadlock's victim, and a connection that turns out to be dead before the commit, are tried again: nothing
        has happened then. A failure of the commit itself is raised: whether it took place is unknown.
        """
        ...
