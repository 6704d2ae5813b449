"""Operations drawn from a seed: names of Player's methods with their arguments, aimed so that most of them meet."""

from __future__ import annotations

from random import Random
from typing import Any

from contracts.frames_pb2 import Candidate, Difference, Direction, RebuildMark, Routing, RoutingMark
from contracts.keys import bucket_shard
from finalizer.channels.outcome import Result
from finalizer.domain.batch import Activated, BatchPlan, Claim, RebuildMarked, RoutingMarked, ShardProgress
from finalizer.domain.lifecycle import Event
from finalizer.shard_ports import Phase, RebuildPhase
from simulation.database.engine import MemoryDatabase
from tests.simulation.database.player import PARTITIONS
from tests.simulation.database.world import END_MS, START_MS

SYMBOLS = ("AAA", "BTC", "CCC")
FEEDS = ("stocks", "coins", "none")
SHARDS = (bucket_shard("stocks", 0), bucket_shard("stocks", 1), bucket_shard("coins", 0))
OWNERS = 3
WEIGHTS = {
    "create": 20, "move": 12, "look": 4, "add_channel": 4, "disable_channel": 2, "set_quota": 1, "finalize": 24,
    "sweep": 4, "lead": 1, "resign": 1, "take": 3, "number": 4, "publish": 4, "publish_triggers": 5, "accept": 5,
    "claim": 4, "settle": 5, "take_lease": 1, "save_checkpoints": 1, "publish_controls": 3, "declare": 4,
    "set_settings": 1, "reshard": 16, "rebuild": 5,
}  # fmt: skip


class Draw:
    """Looks at one of the databases, which is like the others, to aim."""

    def __init__(self, seed: int, looked_at: MemoryDatabase) -> None:
        self.random = Random(seed)
        self.database = looked_at
        self.expiries = 0

    def operation(self) -> tuple[Any, ...]:
        (name,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        return name, *getattr(self, name)()

    def _chance(self, of: float) -> bool:
        return self.random.random() < of

    def _owner(self) -> int:
        return self.random.randint(1, OWNERS)

    def _alert(self) -> dict[str, Any]:
        """One of the newest rows, or none there is."""
        rows = self.database.rows("alerts")[-12:]
        missing = {"alert_id": 999, "version": 1, "shard": SHARDS[0], "owner_id": 1, "expires_at_ms": END_MS}
        return self.random.choice(rows) if rows else missing

    # -- owners
    def create(self) -> tuple[Any, ...]:
        price, self.expiries = self._chance(0.4), self.expiries + 1
        fields: dict[str, Any] = {
            "symbol": self.random.choice(SYMBOLS[:2] if len(self.database.rows("instruments")) < 3 else SYMBOLS),
            "owner_id": self._owner(),
            "kind": "price" if price else "change",
            "window": None if price else self.random.choice(("1m", "1h", "1y")),
            "direction": self.random.choice(("ABOVE", "BELOW") if price else ("UP", "DOWN", "EITHER")),
            "threshold": self.random.randint(1, 1 << 40),
            "channel_ids": self.random.choice([[], [], [1], [2, 3]]),
            "expires_at_ms": END_MS + self.random.randint(-500, 500) * 1_000 + self.expiries,
        }
        if self._chance(0.4):
            key = self.random.randrange(6)
            fields |= {"idempotency_key": f"k{key}", "request_hash": bytes([key])}
        if self._chance(0.05):
            fields |= self.random.choice([{"direction": "NONE"}, {"expires_at_ms": START_MS}, {"window": "2h"}])
            fields["window"] = None if fields["window"] == "2h" and not price else fields["window"]
        return (fields,)

    def move(self) -> tuple[Any, ...]:
        alert = self._alert()
        owner = alert["owner_id"] if self._chance(0.85) else self._owner()
        event = self.random.choice((Event.CANCEL, Event.PAUSE, Event.PAUSE, Event.RESUME))
        return event, owner, alert["alert_id"], False

    def look(self) -> tuple[Any, ...]:
        alert = self._alert()
        status = self.random.choice((None, "PENDING", "ACTIVE", "TRIGGERED", "EXPIRING", "CANCELLED"))
        symbol = self.random.choice((None, None, *SYMBOLS))
        return alert["owner_id"], alert["alert_id"], status, symbol, END_MS + self.random.randint(-1, 1) * 250_000

    def add_channel(self) -> tuple[Any, ...]:
        return self._owner(), f"https://{self.random.randrange(4)}.example/", self.random.randint(1, 3)

    def disable_channel(self) -> tuple[Any, ...]:
        return self._owner(), self.random.randint(1, 6)

    def set_quota(self) -> tuple[Any, ...]:
        return self._owner(), self.random.randint(1, 15)

    # -- finalizer
    def finalize(self) -> tuple[Any, ...]:
        # one activation and one claim an alert and version, as plan_batch sees to: of two, the server takes either
        activations, claims = {}, {}
        for _ in range(self.random.randint(0, 3)):
            alert_id, version, shard = self._aimed()
            from_ms = START_MS + self.random.randrange(3)
            position = self.random.randint(1, 99)
            activations[alert_id, version] = Activated(shard, alert_id, version, from_ms, 1, position)
        for _ in range(self.random.randint(0, 3)):
            claim = self._claim()
            claims[claim.candidate.alert_id, claim.candidate.version] = claim
        plan = BatchPlan(list(activations.values()), list(claims.values()))
        plan.newest_activations = plan.activations
        for shard in self.random.sample(SHARDS, self.random.randint(0, 2)):
            numbers = [self.random.randint(1, 9) for _ in range(8)]
            frontier_ms = self.random.choice((0, START_MS, END_MS - 400_000, END_MS, END_MS + 900_000))
            gap = self.random.choice((None, None, "a gap"))
            plan.progress.append(ShardProgress(shard, *numbers[:3], frontier_ms, *numbers[:6], gap))
        self._mark(plan)
        partitions = self.random.sample(range(PARTITIONS), self.random.randint(1, PARTITIONS))
        return plan, partitions, self._chance(0.05), self._chance(0.05)

    def _mark(self, plan: BatchPlan) -> None:
        """What matchers say of a reshard or rebuild that is under way."""
        for row in self.database.rows("reshards")[-2:]:
            for shard in {alert["moving_to"] or alert["shard"] for alert in self.database.rows("alerts")[-9:]}:
                if self._chance(0.5):
                    phase = self.random.choice((Routing.OPEN, Routing.COPY, Routing.COPY, Routing.END))
                    mark = RoutingMark(symbol=row["symbol"], version=row["version"], phase=phase)
                    place = self.random.choice((1, 1, 1, 2)), self.random.choice((0, 1, 50))
                    plan.routing_marks.append(RoutingMarked(shard, *place, mark))
        for row in self.database.rows("rebuilds")[-1:]:
            mark = RebuildMark(
                rebuild_id=row["rebuild_id"], step=self.random.randrange(3), known=self.random.randrange(3),
                missing=1, surplus=self.random.randrange(2), other_version=0,
                differences=[Difference(kind=Difference.MISSING, alert_id=7, version=1)],
            )  # fmt: skip
            plan.rebuild_marks.append(RebuildMarked(row["shard"] if self._chance(0.9) else "no/0~0", mark))

    def reshard(self) -> tuple[Any, ...]:
        """Steps of a driver that has lost its wits: every statement must bear any order."""
        if self._chance(0.2):
            return "request", self.random.choice(SYMBOLS), self.random.randint(1, 3)
        what = self.random.choice(("copy", "copy", "switch", "switch", "route", "enter", "send", "marked"))
        phase = self.random.choice([*Phase, Phase.COPYING, Phase.COPYING, Phase.COPYING])
        return what, phase, self.random.choice((1, 3, 99))

    def rebuild(self) -> tuple[Any, ...]:
        what = self.random.choice(("request", "page", "page", "enter"))
        return what, self.random.choice((None, *SYMBOLS)), self.random.choice(list(RebuildPhase)), self._chance(0.5)

    def _aimed(self) -> tuple[int, int, str]:
        alert = self._alert()
        version = alert["version"] if self._chance(0.9) else self.random.randint(1, 3)
        shard = alert["shard"] if self._chance(0.95) else self.random.choice(SHARDS)
        if alert.get("moving_to") and self._chance(0.6):
            shard = alert["moving_to"]
        return alert["alert_id"], version, shard

    def _claim(self) -> Claim:
        alert_id, version, shard = self._aimed()
        at_ms = self.random.choice((START_MS - 1, START_MS + 1, START_MS + 9, END_MS - 300_000, END_MS + 700_000))
        candidate = Candidate(
            alert_id=alert_id,
            version=version,
            event_time_ms=at_ms,
            sequence=self.random.randrange(3),
            session=self.random.randrange(3),
            price_scaled=self.random.randint(1, 1 << self.random.randint(1, 47)),
            fired=self.random.choice((Direction.UP, Direction.DOWN, Direction.ABOVE, Direction.BELOW)),
            window=self.random.randrange(6),
            reference_time_ms=at_ms - self.random.randint(0, 10**9),
            reference_price_scaled=self.random.randrange(1 << self.random.randint(1, 47)),
            previous_bps=self.random.randint(-(10**6), 10**6),
            current_bps=self.random.randint(-(10**6), 10**6),
            previous_price_scaled=self.random.randrange(1 << self.random.randint(1, 47)),
            previous_event_time_ms=at_ms - self.random.randint(0, 10**9),
        )
        return Claim(shard, self.random.randint(1, 3), self.random.randint(1, 99), candidate)

    def sweep(self) -> tuple[Any, ...]:
        return (self.random.choice((1, 3, 100)),)

    # -- relays
    def _relay(self) -> int:
        return self.random.randrange(2)

    def lead(self) -> tuple[Any, ...]:
        return (self._relay(),)

    resign = lead

    def take(self) -> tuple[Any, ...]:
        return self._relay(), self.random.choice((1, 9))

    def number(self) -> tuple[Any, ...]:
        return self._relay(), self.random.choice((2, 99))

    def publish(self) -> tuple[Any, ...]:
        return self._relay(), self.random.choice((3, 99)), self.random.choice((0, 2, 99))

    def publish_triggers(self) -> tuple[Any, ...]:
        return self.random.choice((1, 99)), self._chance(0.2)

    # -- notifier
    def accept(self) -> tuple[Any, ...]:
        rows = self.database.rows("triggers")[-5:]
        wanted = [
            (row["alert_id"], row["owner_id"] if self._chance(0.8) else self._owner(),
             tuple(self.random.sample(range(1, 7), 3)))
            for row in self.random.sample(rows, self.random.randint(0, len(rows)))
        ]  # fmt: skip
        return wanted, self.random.randint(0, 50), self._chance(0.1)

    def claim(self) -> tuple[Any, ...]:
        return self.random.randint(0, 100), self.random.randint(1, 60)

    def settle(self) -> tuple[Any, ...]:
        results = [
            (self.random.randrange(100), self.random.choice(list(Result)), self.random.choice(("", "busy")),
             self.random.randint(0, 100), self._chance(0.1))
            for _ in range(self.random.randint(0, 4))
        ]  # fmt: skip
        return results, self.random.randint(0, 100)

    # -- gateway and operator
    def take_lease(self) -> tuple[Any, ...]:
        return self.random.choice(FEEDS), '{"b": [1, {"aa": null, "c": "é"}], "a": 1.5}'

    def save_checkpoints(self) -> tuple[Any, ...]:
        leases = {feed: self.random.randint(1, 3) for feed in FEEDS}
        return leases, {feed: f'{{"n": {self.random.randrange(9)}}}' for feed in FEEDS if self._chance(0.7)}

    def publish_controls(self) -> tuple[Any, ...]:
        feed = self.random.choice(FEEDS)
        leases = {row["feed"]: row["lease"] for row in self.database.rows("feeds")}
        lease = leases.get(feed, 1) if self._chance(0.8) else self.random.randint(1, 3)
        return feed, lease, self.random.choice((2, 99)), self.random.choice((0, 1, 99))

    def declare(self) -> tuple[Any, ...]:
        symbol, feed = self.random.choice((*SYMBOLS, "DDD")), self.random.choice(FEEDS)
        return self.random.choice(
            (
                ("create_feed", (feed if feed != "none" else "coins", self.random.randint(1, 2), "live")),
                ("add_instrument", (symbol if symbol != "DDD" else "CCC", feed, self.random.choice((2, 8)))),
                ("add_split", (symbol, START_MS + self.random.randint(-1, 1), self.random.randint(1, 4), 2)),
                ("resume", (symbol,)),
                ("set_routing", (symbol, self.random.randint(1, 3))),
            )
        )

    def set_settings(self) -> tuple[Any, ...]:
        return self.random.choice(FEEDS), self.random.randint(0, 9), self.random.choice(("1h", "1d")), 5
