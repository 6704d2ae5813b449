"""What the drivers of reshards and rebuilds need of a database, as ports; docs/architecture.md says how they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from contracts.frames_pb2 import Command, Routing
from contracts.routes import SymbolRoute
from contracts.vocabulary import Status


class Phase(StrEnum):
    """Of a reshard, in order."""

    OPENING = "OPENING"  # both sets of shards get the metrics from OPEN on; new rules still go to the old set
    DRAINING = "DRAINING"  # new rules go to the new set; those on their way into the old one are waited for
    MARKING = "MARKING"  # the new shards are to come to COPY: behind it is behind every install of an old shard
    COPYING = "COPYING"  # rules are given to the new shards as well
    ENDING = "ENDING"  # the old shards get nothing from END on, and say when they have come there
    SWITCHING = "SWITCHING"  # they have: alerts change shards, claims that waited are decided
    DONE = "DONE"


@dataclass(frozen=True, slots=True)
class Reshard:
    """A row of `reshards`. `old` and `new` are the symbol's routes before and after."""

    reshard_id: int
    version: int
    phase: Phase
    old: SymbolRoute
    new: SymbolRoute

    def routing(self, phase: Routing.Phase) -> Routing:
        """Its record of a phase."""
        return Routing(
            symbol=self.new.symbol, shards=self.new.shards, previous_shards=self.old.shards, version=self.version,
            phase=phase,
        )  # fmt: skip


class Cursor(NamedTuple):
    """A place among a shard's live alerts, in their order."""

    expires_at_ms: int
    alert_id: int


BEGINNING: Final = Cursor(-(1 << 63), 0)


@dataclass(frozen=True, slots=True)
class LiveAlert:
    """A live alert of a shard. `moves`: a new shard is given its rule; `acknowledged`: and has it."""

    alert_id: int
    symbol: str
    status: Status
    expires_at_ms: int
    moves: bool
    acknowledged: bool

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.expires_at_ms, self.alert_id)


class ReshardWork(Protocol):
    """An open transaction that holds a reshard: no other driver works on it meanwhile. Never waits for an alert."""

    @property
    def reshard(self) -> Reshard: ...

    def marked(self, phase: Routing.Phase, shards: Sequence[str]) -> int:
        """How many of these shards have come to its record of this phase."""
        ...

    def live(self, shard: str, after: Cursor, limit: int) -> Sequence[LiveAlert]:
        """Live alerts of a shard, of any symbol, behind `after`."""
        ...

    def unpublished(self, shards: Sequence[str], limit: int) -> int:
        """Commands for these shards that are not in their logs yet, counted up to `limit`."""
        ...

    def copy(self, shard: str, targets: Mapping[int, str]) -> int:
        """Give ACTIVE alerts of `shard` to their targets as well, each with a create command; how many.

        Those that somebody holds, that have ended or move already are left out.
        """
        ...

    def switch(self, shard: str, targets: Mapping[int, str], finalized_at_ms: int) -> int:
        """Live alerts of `shard` into their targets (ACTIVE ones only when acknowledged), and decide what claims of
        theirs are parked; how many. Those that somebody holds are left out."""
        ...

    def forget_claims(self, limit: int) -> int:
        """Drop at most `limit` parked claims of the symbol in the new shards; how many."""
        ...

    def route_creates(self) -> None:
        """From the commit on new rules go to the new shards; creates that read the routing before are committed."""
        ...

    def send(self, phase: Routing.Phase) -> None:
        """Its record of this phase into the feed's controls."""
        ...

    def enter(self, phase: Phase) -> None: ...


class ReshardStore(Protocol):
    """Reshards under way."""

    def under_way(self) -> Sequence[int]:
        """Ids, the oldest first."""
        ...

    def hold(self, reshard_id: int) -> AbstractContextManager[ReshardWork | None]:
        """A transaction on it; None: another driver holds it, or it is done."""
        ...


class RebuildPhase(StrEnum):
    """Of one shard's rebuild, in order."""

    BEGINNING = "BEGINNING"  # its begin command is to be finalized
    ASSERTING = "ASSERTING"  # the table is read into the log
    ENDING = "ENDING"  # its end command is to be finalized
    DONE = "DONE"


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A row of `rebuilds`. `symbol` None: every rule of the shard. Pages: `commands` sent, `reported` answered."""

    rebuild_id: int
    shard: str
    symbol: str | None
    repair: bool
    phase: RebuildPhase
    commands: int
    reported: int
    begun: bool
    ended: bool
    frontier_ms: int


class RulePage(NamedTuple):
    """An AssertRules' rules, held so that no transition of theirs comes before it in the log.

    `held_by_others`: alerts that must be asked for again.
    """

    command: Command
    rules: int
    held_by_others: Sequence[int]


class RebuildWork(Protocol):
    """An open transaction that holds a rebuild."""

    @property
    def rebuild(self) -> Rebuild: ...

    def live(self, after: Cursor, limit: int) -> Sequence[LiveAlert]:
        """Live alerts of its shard behind `after`, of any symbol."""
        ...

    def read(self, alert_ids: Sequence[int]) -> RulePage:
        """Those of these alerts that the index must hold: PENDING or ACTIVE in its shard."""
        ...

    def send(self, command: Command, rules: int = 0) -> None:
        """Into the shard's commands; `rules`: it is a page of so many."""
        ...

    def enter(self, phase: RebuildPhase) -> None: ...


class RebuildStore(Protocol):
    """Rebuilds under way."""

    def under_way(self) -> Sequence[int]:
        """Ids, the oldest first."""
        ...

    def hold(self, rebuild_id: int) -> AbstractContextManager[RebuildWork | None]:
        """A transaction on it; None: another driver holds it, or it is done."""
        ...
