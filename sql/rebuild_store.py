"""Rebuilds in Postgres (finalizer/shard_ports.py has the contract), and how they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from contracts.frames_pb2 import Command
from contracts.keys import bucket_shard
from contracts.routes import SymbolRoute
from finalizer.shard_ports import Cursor, LiveAlert, Rebuild, RebuildPhase, RulePage
from sql.connection import Pool, Row, transaction
from sql.named import load_queries
from sql.reference_store import ProtocolUnderWayError, UnknownFeedError, UnknownInstrumentError
from sql.reshard_store import list_live, reshard_of
from sql.rules import assert_rules

QUERIES: Final = load_queries("rebuild")
RESHARDS: Final = load_queries("reshard")
REFERENCE: Final = load_queries("reference")


@dataclass(frozen=True, slots=True)
class RebuildProgress:
    """How far one shard is. `differences`: {"kind", "alert_id", "version", "found_version"}, the first of them."""

    rebuild_id: int
    shard: str
    symbol: str | None
    repair: bool
    phase: RebuildPhase
    commands: int
    asserted: int
    reported: int
    known: int
    missing: int
    other_version: int
    surplus: int
    differences: Sequence[Mapping[str, Any]]


class PostgresRebuildStore:
    """RebuildStore, and what a starter asks."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def request(self, feed: str | None, symbol: str | None, *, repair: bool, state_lost: bool = False) -> list[int]:
        """Begin with the shards of one symbol (its rules alone), or with every shard of a feed, or of all feeds.

        `state_lost`: their matchers know nothing, and their logs don't begin at number 1: commands begin a new epoch.
        Returns rebuild ids, one a shard. Raises UnknownFeedError, UnknownInstrumentError, ProtocolUnderWayError.
        """
        with transaction(self._pool) as connection:
            shards = self._shards(connection, feed, symbol)
            if state_lost:
                QUERIES.renumber_shards(connection, shards=shards)
            ids = []
            for shard in shards:
                rebuild_id = QUERIES.insert_rebuild(connection, shard=shard, symbol=symbol, repair=repair)
                if rebuild_id is None:
                    raise ProtocolUnderWayError(f"reading out shard {shard}", "it is being rebuilt or verified")
                ids.append(int(rebuild_id))
            return ids

    def _shards(self, connection: Connection[Row], feed: str | None, symbol: str | None) -> list[str]:
        """One request at a time: reshards and rebuilds look at each other."""
        routes = [SymbolRoute(**row) for row in QUERIES.list_routes(connection, feed=feed, symbol=symbol)]
        if symbol is not None and not routes:
            raise UnknownInstrumentError(symbol)
        feeds = [row["feed"] for row in REFERENCE.list_feeds(connection)]
        wanted = sorted({route.feed for route in routes} if symbol is not None else {feed} if feed else set(feeds))
        shards: set[str] = set()
        for name in wanted:
            locked = REFERENCE.lock_feed(connection, feed=name)
            if locked is None:
                raise UnknownFeedError(name)
            if symbol is None:
                shards.update(bucket_shard(name, bucket) for bucket in range(locked["buckets"]))
        routes = [SymbolRoute(**row) for row in QUERIES.list_routes(connection, feed=feed, symbol=symbol)]
        shards.update(
            shard for route in routes if symbol is not None or route.shards > 1 for shard in route.all_shards()
        )
        for name in wanted:
            for row in RESHARDS.find_open_of_feed(connection, feed=name):
                moving = reshard_of(row)
                if shards.intersection([*moving.old.all_shards(), *moving.new.all_shards()]):
                    under_way = f"{moving.new.symbol} is moving to {moving.new.shards} shards"
                    raise ProtocolUnderWayError("reading out its shards", under_way)
        return sorted(shards)

    def progress(self, rebuild_ids: Collection[int]) -> list[RebuildProgress]:
        with transaction(self._pool) as connection:
            rows = list(QUERIES.read_rebuilds(connection, rebuild_ids=list(rebuild_ids)))
        return [RebuildProgress(**{**row, "phase": RebuildPhase(row["phase"])}) for row in rows]

    def live_alerts(self, shards: Collection[str], symbol: str | None) -> int:
        """How many rules are to be asserted: for a progress bar."""
        with transaction(self._pool) as connection:
            return sum(row["alerts"] for row in QUERIES.count_live(connection, shards=list(shards), symbol=symbol))

    def under_way(self) -> Sequence[int]:
        with transaction(self._pool) as connection:
            return [row["rebuild_id"] for row in QUERIES.find_under_way(connection)]

    @contextmanager
    def hold(self, rebuild_id: int) -> Iterator[PostgresRebuildWork | None]:
        with transaction(self._pool) as connection:
            row = QUERIES.hold_rebuild(connection, rebuild_id=rebuild_id)
            yield PostgresRebuildWork(connection, _rebuild(row)) if row else None


class PostgresRebuildWork:
    """RebuildWork over an open transaction that holds the row."""

    def __init__(self, connection: Connection[Row], rebuild: Rebuild) -> None:
        self._connection = connection
        self.rebuild = rebuild

    def live(self, after: Cursor, limit: int) -> Sequence[LiveAlert]:
        return list_live(self._connection, self.rebuild.shard, after, limit)

    def read(self, alert_ids: Sequence[int]) -> RulePage:
        wanted = {"alert_ids": list(alert_ids), "shard": self.rebuild.shard, "symbol": self.rebuild.symbol}
        rows = list(QUERIES.hold_rules(self._connection, **wanted))
        held = {row["alert_id"] for row in rows}
        left = [row["alert_id"] for row in QUERIES.list_rules(self._connection, **wanted)]
        page = assert_rules(self.rebuild.rebuild_id, rows)
        return RulePage(Command(assert_rules=page), len(rows), [alert_id for alert_id in left if alert_id not in held])

    def send(self, command: Command, rules: int = 0) -> None:
        QUERIES.insert_command(
            self._connection, shard=self.rebuild.shard, payload=command.SerializeToString(deterministic=True)
        )
        pages = 0 if command.HasField("end_rebuild") else 1
        QUERIES.count_command(self._connection, rebuild_id=self.rebuild.rebuild_id, pages=pages, rules=rules)

    def enter(self, phase: RebuildPhase) -> None:
        QUERIES.enter_phase(self._connection, rebuild_id=self.rebuild.rebuild_id, phase=str(phase))


def _rebuild(row: Row) -> Rebuild:
    return Rebuild(**{**row, "phase": RebuildPhase(row["phase"])})
