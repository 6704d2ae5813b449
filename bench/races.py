"""Cancel, trigger, expire and pause race for the same alerts on real Postgres: each has one end and every word fits.

Rounds of alerts; in each, four threads with connections of their own go through them in orders of their own: claims in
batches as the consumer applies them, the sweeper's batches, and the API's cancel and pause one by one. Then the tables
are read.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from contracts.frames_pb2 import Candidate, Direction
from contracts.keys import bucket_of, bucket_shard
from contracts.vocabulary import WINDOWS, Status
from finalizer.domain.batch import BatchPlan, Claim
from sql.alert_store import LIVE, PostgresAlertStore
from sql.bench_store import BenchStore, BulkInstrument, RacedAlert
from sql.connection import Pool, open_pool, transaction
from sql.finalizer_store import PostgresFinalizerStore, PostgresWork
from sql.migrate import migrate
from sql.reference_store import ReferenceStore
from stack.embedded import POSTGRES, EmbeddedStack
from stack.progress import say, step
from stack.settings import StackSettings

ROUND: Final = 1_000
OWNERS: Final = 8
BUCKETS: Final = 4
FEED: Final = "races"
SYMBOLS: Final = [f"S{number}" for number in range(8)]
END_MS: Final = 1_700_000_000_000
MAX_BATCH: Final = 40  # claims, or due alerts, of one transaction
ASKED: Final = 0.6  # of all alerts are cancelled, and of all alerts are paused
TOLD_EVERY_SECONDS: Final = 10.0


@dataclass
class RaceReport:
    """`races`: alerts that were raced for. `winners`: status -> alerts at the end; `paused`: were so meanwhile.

    `wrong`: alerts whose end, outbox row, remove commands and what the racers were told don't fit; `first_wrong` shows
    some. `places_left`: quota places that are still held though every alert has ended.
    """

    races: int = 0
    winners: Counter[str] = field(default_factory=Counter)
    paused: int = 0
    wrong: int = 0
    first_wrong: list[str] = field(default_factory=list)
    places_left: int = 0


def measure_races(races: int, seed: int = 1) -> dict[str, Any]:
    """On a database of its own. `met`: no alert went wrong and every racer won somewhere."""
    home = Path(tempfile.mkdtemp(prefix="alerts-bench-races-"))
    home.chmod(0o711)  # Postgres's account must enter it
    stack = EmbeddedStack(StackSettings().model_copy(update={"home": home, "flink_port": None, "api_port": None}))
    with ExitStack() as ending:
        ending.callback(stack.destroy)
        stack.up((POSTGRES,))
        migrate(stack.postgres_dsn, "races")
        started = time.monotonic()
        with step(f"{races} races"):
            report = race(stack.postgres_dsn, "races", races, seed)
        seconds = time.monotonic() - started
    everybody_won = all(report.winners[status] for status in ("TRIGGERED", "CANCELLED", "EXPIRED")) and report.paused
    return {
        "bench": "races", **asdict(report), "seconds": round(seconds, 1), "races_per_second": round(races / seconds),
        "goal": 0, "met": not report.wrong and not report.places_left and bool(everybody_won),
        "setup": {"races": races, "seed": seed, "round": ROUND, "threads": 4, "owners": OWNERS},
    }  # fmt: skip


def race(dsn: str, schema: str, races: int, seed: int) -> RaceReport:
    """In a migrated, empty schema. A racer's error ends it."""
    with open_pool(dsn, schema, "races", max_size=5) as pool:
        shards = {symbol: bucket_shard(FEED, bucket_of(symbol, BUCKETS)) for symbol in SYMBOLS}
        ReferenceStore(pool).create_feed(FEED, BUCKETS, "replay")
        with transaction(pool) as connection:
            store = BenchStore(connection)
            store.insert_instruments(FEED, (BulkInstrument(s, 2, bucket_of(s, BUCKETS), b"") for s in shards))
            store.insert_owners(OWNERS)
        report, told_at = RaceReport(), time.monotonic()
        while report.races < races:
            count = min(ROUND, races - report.races)
            _Round(pool, shards, random.Random(f"{seed}:{report.races}"), report.races, count).run(report)
            if time.monotonic() - told_at > TOLD_EVERY_SECONDS:
                told_at = time.monotonic()
                say(f"{report.races} races, {report.wrong} wrong")
        with transaction(pool) as connection:
            report.places_left = BenchStore(connection).places_held()
    return report


class _Round:
    """One field of alerts. What each racer was told is kept, to be held against the tables."""

    def __init__(self, pool: Pool, shards: dict[str, str], draw: random.Random, done: int, count: int) -> None:
        self._pool, self._shards, self._draw = pool, shards, draw
        with transaction(pool) as connection:
            store = BenchStore(connection)
            self._after = store.last_ids()
            store.insert_active_alerts(
                range(done + 1, done + count + 1), OWNERS, shards, created_at_ms=END_MS - 1_000, expires_at_ms=END_MS
            )
            self._alerts = store.raced(*self._after)
        self._told: dict[str, list[int]] = {"TRIGGERED": [], "CANCELLED": [], "PAUSED": []}
        self._expired = 0
        self._others_done = threading.Event()
        self._failures: list[BaseException] = []

    def run(self, report: RaceReport) -> None:
        orders = [self._draw.sample(self._alerts, len(self._alerts)) for _ in range(3)]
        asked = int(len(self._alerts) * ASKED) + 1
        sizes = [self._draw.randint(1, MAX_BATCH) for _ in range(len(self._alerts))]
        start = threading.Barrier(4)
        racers = [
            self._thread(start, lambda: self._claim(orders[0], sizes)),
            self._thread(start, lambda: self._ask(orders[1][:asked], "CANCELLED")),
            self._thread(start, lambda: self._ask(orders[2][:asked], "PAUSED")),
        ]
        sweeper = self._thread(start, lambda: self._sweep(sizes))
        for racer in racers:
            racer.join()
        self._others_done.set()
        sweeper.join()
        if self._failures:
            raise self._failures[0]
        while any(self._expire(shard, ROUND) for shard in set(self._shards.values())):
            pass
        self._judge(report)

    def _thread(self, start: threading.Barrier, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            start.wait()
            try:
                work()
            except BaseException as error:  # a thread's error must reach the caller
                self._failures.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    def _claim(self, order: Sequence[RacedAlert], sizes: Sequence[int]) -> None:
        first = 0
        for size in sizes:
            claims = [_claim(alert) for alert in order[first : first + size]]
            if not claims:
                return
            with transaction(self._pool) as connection:
                outcome = PostgresWork(connection).apply(BatchPlan(claims=claims), END_MS)
            self._told["TRIGGERED"] += outcome.triggered
            first += size

    def _ask(self, order: Sequence[RacedAlert], wanted: str) -> None:
        for alert in order:
            with transaction(self._pool) as connection:
                store = PostgresAlertStore(connection)
                if wanted == "CANCELLED":
                    moved = store.cancel(alert.owner_id, alert.alert_id, LIVE)
                else:
                    moved = store.pause(alert.owner_id, alert.alert_id, [Status.ACTIVE])
            if moved:
                self._told[wanted].append(alert.alert_id)

    def _sweep(self, sizes: Sequence[int]) -> None:
        """At about the pace of the others: else it would have everything before they begin."""
        shards = sorted(set(self._shards.values()))
        for turn, size in enumerate(sizes):
            if self._others_done.wait(0.02):
                return
            self._expire(shards[turn % len(shards)], size)

    def _expire(self, shard: str, limit: int) -> int:
        expired = PostgresFinalizerStore(self._pool).expire(shard, END_MS, limit, END_MS)
        self._expired += expired
        return expired

    def _judge(self, report: RaceReport) -> None:
        told = {status: Counter(ids) for status, ids in self._told.items()}
        with transaction(self._pool) as connection:
            alerts = BenchStore(connection).raced(*self._after)
        ends = Counter(alert.status for alert in alerts)
        wrong = [
            f"{alert}; told: {', '.join(status for status in told if told[status][alert.alert_id]) or 'nothing'}"
            for alert in alerts
            if not fits(alert, {status: told[status][alert.alert_id] for status in told})
        ]
        if ends["EXPIRED"] != self._expired:
            wrong.append(f"the sweeper was told of {self._expired} ends and {ends['EXPIRED']} are EXPIRED")
        report.races += len(alerts)
        report.winners += ends
        report.paused += len(told["PAUSED"])
        report.wrong += len(wrong)
        report.first_wrong += wrong[: max(0, 10 - len(report.first_wrong))]


def fits(alert: RacedAlert, told: dict[str, int]) -> bool:
    """Whether one end, its outbox row, its remove commands and what racers were told (status -> times) go together."""
    return (
        alert.status in ("TRIGGERED", "CANCELLED", "EXPIRED")
        and told["TRIGGERED"] == alert.outbox == (alert.status == "TRIGGERED")
        and told["CANCELLED"] == (alert.status == "CANCELLED")
        and told["PAUSED"] <= 1
        and not (told["PAUSED"] and alert.status == "TRIGGERED")  # paused, it takes no claim any more
        and alert.removes == 1 + told["PAUSED"]
    )


def _claim(alert: RacedAlert) -> Claim:
    up = alert.kind == "change"
    candidate = Candidate(
        alert_id=alert.alert_id, version=1, event_time_ms=END_MS - 1, sequence=1, session=1, price_scaled=10_600,
        fired=Direction.UP if up else Direction.ABOVE, window=WINDOWS.index("1h"), reference_time_ms=END_MS - 3_600_001,
        reference_price_scaled=10_000, previous_bps=480, current_bps=600, previous_price_scaled=10_400,
        previous_event_time_ms=END_MS - 2,
    )  # fmt: skip
    return Claim(alert.shard, 1, 1, candidate)
