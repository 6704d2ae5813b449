"""Which shards a bucket's symbols are written to, while they stay and while they move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from contracts import frames_pb2 as pb
from contracts.keys import bucket_shard, hot_shard
from contracts.vocabulary import MAX_NAME_CHARACTERS

MAX_SHARDS_OF_SYMBOL: Final = 1_024


@dataclass(frozen=True, slots=True)
class Route:
    """A symbol's rules live in `shards` virtual shards, 1: the bucket's. `previous_shards` 0: it is not moving."""

    shards: int
    version: int
    previous_shards: int = 0


class Forward(NamedTuple):
    """A control at this place of these shards."""

    control: pb.Control
    shards: list[str]


@dataclass(slots=True)
class Routes:
    """Routes of one bucket; symbols without one are in the bucket's own shard."""

    feed: str
    bucket: int
    of: dict[str, Route] = field(default_factory=dict)

    def shards(self, symbol: str) -> list[str]:
        """Every shard that gets the symbol's metrics: those it leaves first, then those it is in or moves to."""
        route = self.of.get(symbol)
        if route is None:
            return self._set(symbol, 1)
        left = self._set(symbol, route.previous_shards) if route.previous_shards else []
        return left + self._set(symbol, route.shards)

    def elsewhere(self) -> list[str]:
        """Symbols that are written to other shards than the bucket's alone."""
        return [symbol for symbol, route in self.of.items() if route.shards > 1 or route.previous_shards]

    def all_shards(self) -> list[str]:
        """The bucket's own and every other one that any symbol is written to."""
        own = bucket_shard(self.feed, self.bucket)
        return [own, *(shard for symbol in self.elsewhere() for shard in self.shards(symbol) if shard != own)]

    def apply(self, routing: pb.Routing, newest_ms: int, splits: Callable[[], list[pb.Split]]) -> list[Forward]:
        """Take a routing record in and say what the shards must be told, in order; nothing for one that is over.

        `newest_ms`: the symbol's newest emitted event time (0: none). A phase may be the first that is known of its
        version (rolling began behind the earlier ones): it implies them.
        """
        known = self.of.get(routing.symbol)
        version = 0 if known is None else known.version
        if not 0 < len(routing.symbol) <= MAX_NAME_CHARACTERS or not 1 <= routing.shards <= MAX_SHARDS_OF_SYMBOL:
            return []
        if routing.phase == pb.Routing.AT_ONCE:
            return self._at_once(routing, splits) if known is None or routing.version > version else []
        ends = routing.phase == pb.Routing.END
        if not 1 <= routing.previous_shards <= MAX_SHARDS_OF_SYMBOL or routing.previous_shards == routing.shards:
            return []
        if routing.version < version or (routing.version == version and not (known and known.previous_shards)):
            return []
        fresh = routing.version > version
        if not fresh and routing.phase == pb.Routing.OPEN:
            return []
        told = pb.Routing()
        told.CopyFrom(routing)
        told.newest_event_time_ms = newest_ms
        forwards = []
        new, old = self._set(routing.symbol, routing.shards), self._set(routing.symbol, routing.previous_shards)
        if fresh:
            forwards += [Forward(pb.Control(split=split), new) for split in splits()]
        previous = 0 if ends else routing.previous_shards
        self.of[routing.symbol] = Route(routing.shards, routing.version, previous)
        return [*forwards, Forward(pb.Control(routing=told), old if ends else new)]

    def _at_once(self, routing: pb.Routing, splits: Callable[[], list[pb.Split]]) -> list[Forward]:
        """Old and new shards both see the change; a new one learns the symbol's splits first."""
        before = self.shards(routing.symbol)
        self.of[routing.symbol] = Route(routing.shards, routing.version)
        fresh = [shard for shard in self.shards(routing.symbol) if shard not in before]
        forwards = [Forward(pb.Control(split=split), fresh) for split in splits()] if fresh else []
        return [*forwards, Forward(pb.Control(routing=routing), before + fresh)]

    def _set(self, symbol: str, shards: int) -> list[str]:
        if shards == 1:
            return [bucket_shard(self.feed, self.bucket)]
        return [hot_shard(self.feed, symbol, shards, index) for index in range(shards)]
