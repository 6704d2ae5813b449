"""Reshards in Postgres (finalizer/shard_ports.py has the contract)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from psycopg import Connection

from contracts.frames_pb2 import Candidate, Control, Routing
from contracts.keys import bucket_of
from contracts.routes import SymbolRoute
from contracts.vocabulary import Status
from finalizer.domain.batch import Claim
from finalizer.shard_ports import Cursor, LiveAlert, Phase, Reshard
from sql.connection import Pool, Row, transaction
from sql.finalizer_store import apply_claims, release_places
from sql.named import load_queries
from sql.reference_store import insert_control

QUERIES: Final = load_queries("reshard")


@dataclass(frozen=True, slots=True)
class ReshardProgress:
    """How far a symbol's newest reshard is. `copied` and `switched` count alerts."""

    reshard: Reshard
    copied: int
    switched: int


class PostgresReshardStore:
    """ReshardStore, and what a starter asks."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def under_way(self) -> Sequence[int]:
        with transaction(self._pool) as connection:
            return [row["reshard_id"] for row in QUERIES.find_under_way(connection)]

    @contextmanager
    def hold(self, reshard_id: int) -> Iterator[PostgresReshardWork | None]:
        with transaction(self._pool) as connection:
            row = QUERIES.hold_reshard(connection, reshard_id=reshard_id)
            yield PostgresReshardWork(connection, reshard_of(row)) if row else None

    def newest(self, symbol: str) -> ReshardProgress | None:
        """None: the symbol has never been moved."""
        with transaction(self._pool) as connection:
            row = QUERIES.find_newest_reshard(connection, symbol=symbol)
        return ReshardProgress(reshard_of(row), row["copied"], row["switched"]) if row else None


class PostgresReshardWork:
    """ReshardWork over an open transaction that holds the row."""

    def __init__(self, connection: Connection[Row], reshard: Reshard) -> None:
        self._connection = connection
        self.reshard = reshard

    def marked(self, phase: Routing.Phase, shards: Sequence[str]) -> int:
        count: int = QUERIES.count_marked(
            self._connection,
            symbol=self.reshard.new.symbol,
            phase=Routing.Phase.Name(phase),
            version=self.reshard.version,
            shards=list(shards),
        )
        return count

    def live(self, shard: str, after: Cursor, limit: int) -> Sequence[LiveAlert]:
        return list_live(self._connection, shard, after, limit)

    def unpublished(self, shards: Sequence[str], limit: int) -> int:
        count: int = QUERIES.count_waiting_commands(self._connection, shards=list(shards), limit=limit)
        return count

    def copy(self, shard: str, targets: Mapping[int, str]) -> int:
        count: int = QUERIES.copy_alerts(
            self._connection,
            reshard_id=self.reshard.reshard_id,
            shard=shard,
            alert_ids=list(targets),
            targets=list(targets.values()),
        )
        return count

    def switch(self, shard: str, targets: Mapping[int, str], finalized_at_ms: int) -> int:
        rows = QUERIES.switch_alerts(
            self._connection,
            reshard_id=self.reshard.reshard_id,
            shard=shard,
            alert_ids=list(targets),
            targets=list(targets.values()),
        )
        switched = [row["alert_id"] for row in rows]
        parked = [_claim(row) for row in QUERIES.take_parked(self._connection, alert_ids=switched)]
        if parked:
            ended, _ = apply_claims(self._connection, parked, finalized_at_ms)
            release_places(self._connection, ended)
        return len(switched)

    def forget_claims(self, limit: int) -> int:
        count: int = QUERIES.forget_parked(
            self._connection, symbol=self.reshard.new.symbol, shards=self.reshard.new.all_shards(), limit=limit
        )
        return count

    def route_creates(self) -> None:
        new = self.reshard.new
        QUERIES.route_creates(self._connection, symbol=new.symbol, shards=new.shards)

    def send(self, phase: Routing.Phase) -> None:
        new = self.reshard.new
        control = Control(routing=self.reshard.routing(phase))
        insert_control(self._connection, new.feed, bucket_of(new.symbol, new.buckets), control)

    def enter(self, phase: Phase) -> None:
        QUERIES.enter_phase(self._connection, reshard_id=self.reshard.reshard_id, phase=str(phase))


def reshard_of(row: Row) -> Reshard:
    """Of a row with the symbol's feed and its buckets."""
    old, new = (
        SymbolRoute(row["symbol"], row["feed"], row["buckets"], row[shards]) for shards in ("old_shards", "new_shards")
    )
    return Reshard(row["reshard_id"], row["version"], Phase(row["phase"]), old, new)


def list_live(connection: Connection[Row], shard: str, after: Cursor, limit: int) -> list[LiveAlert]:
    """Live alerts of a shard behind `after`."""
    rows = QUERIES.list_live(
        connection,
        shard=shard,
        after_expires_at_ms=after.expires_at_ms,
        after_alert_id=after.alert_id,
        limit=limit,
    )
    return [LiveAlert(**{**row, "status": Status(row["status"])}) for row in rows]


def _claim(row: Row) -> Claim:
    return Claim(row["shard"], row["epoch"], row["position"], Candidate.FromString(bytes(row["candidate"])))
