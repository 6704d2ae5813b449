"""What the finalizer's services need of a database, as protocols: Postgres is one adapter (`sql/`), memory another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from contracts.frames_pb2 import Command
from finalizer.channels.outcome import Delivery, Result
from finalizer.domain.batch import BatchPlan, ShardProgress
from finalizer.owner_turns import MAX_SENDS_AN_OWNER


class PositionsMovedError(Exception):
    """Another instance has finalized these records meanwhile; nothing was written: read the positions again."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"positions of {topic} were moved by another instance")
        self.topic = topic


class PartitionCountError(Exception):
    """A topic has another number of partitions than when its reading began: its keys lie elsewhere now."""

    def __init__(self, topic: str, known: int, found: int) -> None:
        super().__init__(f"topic {topic} has {found} partitions, its positions are of {known}; recreate or migrate it")
        self.topic, self.known, self.found = topic, known, found


class FencedError(Exception):
    """Another relay owns these shards now."""

    def __init__(self, shards: Iterable[str]) -> None:
        self.shards = sorted(shards)
        super().__init__(
            f"another relay has taken {', '.join(self.shards[:5])} and {max(0, len(self.shards) - 5)} more"
        )


@dataclass(frozen=True, slots=True)
class Moves:
    """A batch's conditional advance: partition -> (offset it was read from, next offset)."""

    topic: str
    offsets: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What came of a plan: alert ids, and how many activations were applied."""

    activated: int = 0
    triggered: Sequence[int] = ()
    refused: Sequence[int] = ()


class FinalizerWork(Protocol):
    """An open transaction of one batch."""

    def progress(self, shards: Iterable[str]) -> dict[str, ShardProgress]:
        """Stored progress; shards never seen are left out."""
        ...

    def apply(self, plan: BatchPlan, finalized_at_ms: int) -> BatchOutcome: ...


class Positions(Protocol):
    """Where a topic's reading goes on."""

    def positions(self, topic: str, partitions: int) -> dict[int, int]:
        """Partition -> next offset, 0 at first. Raises PartitionCountError."""
        ...


@dataclass(frozen=True, slots=True)
class Gap:
    """A shard that stands still: numbers of its candidates are missing (`what`), since `since_ms` (wall clock)."""

    shard: str
    what: str
    since_ms: int


class FinalizerStore(Positions, Protocol):
    """Candidates to facts."""

    def gaps(self, limit: int) -> tuple[int, Sequence[Gap]]:
        """How many shards have a gap that nobody has filled, and the longest standing of them, at most `limit`."""
        ...

    def advance(self, moves: Moves) -> AbstractContextManager[FinalizerWork]:
        """One transaction that moves the positions; raises PositionsMovedError when they aren't where they were."""
        ...


class SweeperStore(Protocol):
    """Expiry behind the finalized frontier."""

    def shards_due(self, limit: int) -> Sequence[tuple[str, int]]:
        """(shard, frontier_ms) of shards whose frontier has passed their sweep, or that hold live alerts behind it."""
        ...

    def expire(self, shard: str, frontier_ms: int, limit: int, ended_at_ms: int) -> int:
        """End at most `limit` live alerts with expires_at <= frontier; when none is left, move the sweep there."""
        ...


@dataclass(frozen=True, slots=True)
class NumberedCommand:
    """A rule command under its number, as the shard log gets it."""

    command_id: int
    shard: str
    epoch: int
    number: int
    command: Command


class RuleRelayStore(Protocol):
    """Rule commands into the shard log, each shard under a fence."""

    def lead(self) -> bool:
        """Whether this relay is the one that works; others stand by. Only saves work: safety is the fences'."""
        ...

    def resign(self) -> None:
        """Let a standby lead; harmless when this one doesn't."""
        ...

    def shards_waiting(self, limit: int, after: str = "") -> Sequence[str]:
        """Shards behind `after` with commands that were not published, in order."""
        ...

    def take(self, shards: Sequence[str]) -> dict[str, int]:
        """Fence out every earlier relay of these shards; shard -> fence."""
        ...

    def number(self, fences: Mapping[str, int], limit: int) -> int:
        """Give at most `limit` committed commands their numbers, for good; how many. Raises FencedError."""
        ...

    def numbered(self, fences: Mapping[str, int], limit: int) -> Sequence[NumberedCommand]:
        """Commands that have a number and were not published, by (shard, number)."""
        ...

    def mark_published(self, fences: Mapping[str, int], command_ids: Sequence[int]) -> None:
        """After the log's acknowledgement. Raises FencedError."""
        ...


@dataclass(frozen=True, slots=True)
class OutboxTrigger:
    """A row of the trigger outbox; `payload` is contracts.trigger.TriggerMessage as JSON data."""

    trigger_id: str
    owner_id: int
    payload: Mapping[str, object]


class TriggerRelayWork(Protocol):
    """An open transaction that holds some outbox rows."""

    @property
    def triggers(self) -> Sequence[OutboxTrigger]: ...

    def mark_published(self) -> None:
        """All of them, after the log's acknowledgement."""
        ...


class TriggerRelayStore(Protocol):
    """The trigger outbox; rows held by another relay are left to it."""

    def unpublished(self, limit: int) -> AbstractContextManager[TriggerRelayWork]: ...


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """A trigger that has come out of the log: one row for each of its channels, all with this body."""

    trigger_id: str
    owner_id: int
    channel_ids: Sequence[int]
    body: bytes


@dataclass(frozen=True, slots=True)
class Settled:
    """What a claim came to. `next_attempt_ms` (wall clock) only for RETRY."""

    delivery: Delivery
    result: Result
    reason: str
    next_attempt_ms: int
    disable_channel: bool


class DeliveryStore(Positions, Protocol):
    """The ledger: one row per trigger and channel."""

    def accept(self, moves: Moves, deliveries: Sequence[NewDelivery], now_ms: int) -> int:
        """Move positions and add the rows that aren't there yet; how many. Channels of other owners and unknown
        triggers give none; a disabled channel's row is DEAD. Raises PositionsMovedError."""
        ...

    def claim(
        self, limit: int, now_ms: int, lease_ms: int, owner_limit: int = MAX_SENDS_AN_OWNER
    ) -> Sequence[Delivery]:
        """Due rows, and such whose claim's lease is over, each under a new token, attempts + 1.

        Owners who hold the fewest claims come first, then what has waited longest; in a crowd, owners take turns. An
        owner then holds at most `owner_limit` live claims (a few more when several notifiers claim at once).
        """
        ...

    def settle(self, settled: Sequence[Settled], now_ms: int) -> int:
        """Record results under their tokens; how many still held. A late result changes nothing."""
        ...
