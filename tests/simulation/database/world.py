"""A replay feed, a live one, a symbol on each, an owner: declared through the stores alone, so that it is the same in
every adapter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from api.ports import AlertRecord, NewAlert
from contracts.frames_pb2 import Candidate, Direction
from contracts.keys import bucket_of, bucket_shard, shard_of
from contracts.vocabulary import Status
from finalizer.domain.batch import Activated, BatchPlan, Claim, ShardProgress
from finalizer.domain.lifecycle import Event, sources
from finalizer.ports import BatchOutcome, Moves
from tests.simulation.database.adapters import Adapter

TOPIC, TRIGGERS = "candidates.v1", "triggers.v1"
START_MS, END_MS = 1_000_000, 2_000_000
SYMBOL = "AAA"
SHARD = bucket_shard("stocks", bucket_of(SYMBOL, 2))
OTHER_SHARD = bucket_shard("stocks", 1 - bucket_of(SYMBOL, 2))
FINALIZED_MS = 1_772_366_411_222


class World:
    """What tests do in a line."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        reference = adapter.reference()
        reference.create_feed("stocks", 2, "replay")
        reference.create_feed("coins", 1, "live")
        reference.add_instrument(SYMBOL, "stocks", 2)
        reference.add_instrument("BTC", "coins", 8)
        self.owner_id = self.add_owner("ann")

    def add_owner(self, name: str, quota: int | None = None) -> int:
        owner = self.adapter.api.transact(lambda t: t.owners.insert(name, quota))
        assert owner is not None
        return owner.owner_id

    def set_quota(self, quota: int) -> None:
        self.adapter.api.transact(lambda t: t.owners.set_quota(self.owner_id, quota))

    # -- the owner's
    def new_alert(self, transaction: Any, **fields: Any) -> NewAlert:
        """An alert that is ready to be inserted, its instrument locked as the API does."""
        symbol = fields.pop("symbol", SYMBOL)
        route = transaction.alerts.find_instrument([symbol])
        assert route is not None
        given = {
            "owner_id": self.owner_id, "kind": "change", "window": "1h", "direction": "UP", "threshold": 500,
            "note": "é 📈", "channel_ids": [], "created_at_ms": START_MS, "expires_at_ms": END_MS,
            "idempotency_key": None, "request_hash": None, **fields,
        }  # fmt: skip
        shard = shard_of(route.feed, route.symbol, route.buckets, route.next_alert_id, route.shards)
        return NewAlert(
            alert_id=route.next_alert_id, symbol=route.symbol, shard=shard, decimals=route.decimals, **given
        )

    def try_create(self, **fields: Any) -> AlertRecord | None:
        return self.adapter.api.transact(lambda t: t.alerts.insert(self.new_alert(t, **fields)))

    def create(self, **fields: Any) -> int:
        """A PENDING alert's id."""
        alert = self.try_create(**fields)
        assert alert is not None
        return alert.alert_id

    def create_price(self, **fields: Any) -> int:
        return self.create(**{"kind": "price", "window": None, "direction": "ABOVE", "threshold": 10_500, **fields})

    def create_active(self, count: int = 1, **fields: Any) -> list[int]:
        ids = [self.create(**fields) for _ in range(count)]
        assert self.apply(activations=[activated(alert_id) for alert_id in ids]).activated == count
        return ids

    def cancel(self, alert_id: int, owner_id: int | None = None) -> bool:
        return self.move(Event.CANCEL, alert_id, owner_id)

    def move(self, event: Event, alert_id: int, owner_id: int | None = None) -> bool:
        owner = self.owner_id if owner_id is None else owner_id

        def work(transaction: Any) -> bool:
            alerts = transaction.alerts
            moves = {Event.CANCEL: alerts.cancel, Event.PAUSE: alerts.pause, Event.RESUME: alerts.resume}
            return bool(moves[event](owner, alert_id, sources(event)))

        return self.adapter.api.transact(work)

    def add_channel(self, kind: str = "email", address: str = "ann@example.org", secret: bytes | None = None) -> int:
        row = self.adapter.api.transact(lambda t: t.channels.insert(self.owner_id, kind, address, secret, 20))
        assert row is not None
        return int(row["channel_id"])

    # -- the finalizer's
    def moves(self, by: int = 1) -> Moves:
        position = self.adapter.finalizer().positions(TOPIC, 1)[0]
        return Moves(TOPIC, {0: (position, position + by)})

    def apply(
        self,
        activations: Sequence[Activated] = (),
        claims: Sequence[Claim] = (),
        progress: Sequence[ShardProgress] = (),
    ) -> BatchOutcome:
        with self.adapter.finalizer().advance(self.moves()) as work:
            return work.apply(plan(activations, claims, progress), FINALIZED_MS)

    def trigger(self, *alert_ids: int) -> None:
        outcome = self.apply(claims=[claim(alert_id) for alert_id in alert_ids])
        assert sorted(outcome.triggered) == sorted(alert_ids)

    def set_frontier(self, frontier_ms: int, shard: str = SHARD) -> None:
        self.apply(progress=[ShardProgress(shard, frontier_ms=frontier_ms)])

    # -- what is there
    def row(self, table: str, **key: Any) -> dict[str, Any]:
        (row,) = (row for row in self.adapter.rows(table) if key.items() <= row.items())
        return row

    def alert(self, alert_id: int) -> dict[str, Any]:
        return self.row("alerts", alert_id=alert_id)

    def status(self, alert_id: int) -> str:
        return str(self.alert(alert_id)["status"])

    def live_alerts(self) -> int:
        return int(self.row("owners", owner_id=self.owner_id)["live_alerts"])

    def commands(self) -> list[tuple[int, int, str]]:
        rows = sorted(self.adapter.rows("rule_commands"), key=lambda row: int(row["command_id"]))
        return [(row["alert_id"], row["version"], row["action"]) for row in rows]


def plan(
    activations: Collection[Activated] = (), claims: Collection[Claim] = (), progress: Collection[ShardProgress] = ()
) -> BatchPlan:
    return BatchPlan(list(activations), list(claims), list(progress), newest_activations=list(activations))


def activated(alert_id: int, version: int = 1, shard: str = SHARD, active_from_ms: int = START_MS) -> Activated:
    return Activated(shard, alert_id, version, active_from_ms, 1, alert_id)


def claim(alert_id: int, version: int = 1, shard: str = SHARD, at_ms: int = START_MS + 5, **fields: Any) -> Claim:
    given = {
        "sequence": 7, "session": 3, "price_scaled": 10_500, "fired": Direction.UP, "window": 1,
        "reference_time_ms": START_MS - 3_600_000, "reference_price_scaled": 10_010, "previous_bps": 489,
        "current_bps": 500, **fields,
    }  # fmt: skip
    candidate = Candidate(alert_id=alert_id, version=version, event_time_ms=at_ms, **given)
    return Claim(shard, 1, 40 + alert_id, candidate)


LIVE = (Status.PENDING, Status.ACTIVE, Status.PAUSED)
