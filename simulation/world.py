"""One world: every production service over the simulated log, database, clock and network, run to its rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from contracts.keys import bucket_shard, partition_of
from contracts.routes import SymbolRoute
from contracts.topics import ALL_TOPICS, CANDIDATES, DEAD_LETTERS, PRICES, SHARD_LOG, TICKS, TRIGGERS
from feeds.gateway import FeedGateway, Served
from feeds.ports import StoreAwayError
from feeds.sources.kafka_json import KafkaJsonSource
from finalizer.consumer import Consumer
from finalizer.notifier import Notifier
from finalizer.rebuilder import Rebuilder
from finalizer.resharder import Resharder
from finalizer.rule_relay import RuleRelay
from finalizer.sweeper import Sweeper
from finalizer.together import Together
from finalizer.trigger_relay import TriggerRelay
from flink_jobs.domain.state import MemoryState
from ports.message_log import LogError
from ports.service import Service
from simulation.actors import Clients, Operator, play_source
from simulation.clock import SimulatedClock
from simulation.code import MatcherCode, RollingCode
from simulation.database.delivery_store import MemoryDeliveryStore
from simulation.database.engine import MemoryDatabase
from simulation.database.errors import DatabaseAwayError
from simulation.database.feed_store import MemoryFeedStore
from simulation.database.finalizer_store import MemoryFinalizerStore
from simulation.database.rebuild_store import MemoryRebuildStore
from simulation.database.relay_store import MemoryRuleRelayStore, MemoryTriggerRelayStore
from simulation.database.reshard_store import MemoryReshardStore
from simulation.faults import Faults
from simulation.history import History
from simulation.jobs import Core, SimulatedJob
from simulation.log import SimulatedLog
from simulation.network import Receivers, SimulatedChannel, SimulatedExecutor
from simulation.plan import Fault, FaultKind, Plan, Role
from simulation.scheduler import Scheduler, StuckError, Task

PASSING: Final[tuple[type[Exception], ...]] = (DatabaseAwayError, LogError, StoreAwayError)
PARTITIONS: Final = 2
MAX_TURNS: Final = 60_000
MAX_IDLE_MS: Final = 500  # between two looks of an idle service
LIVE_IDLE_MS: Final = 1_000  # the same where minutes pass
AWAIT_PHASE_MS: Final = 3_000
BEHIND_MOVES_MS: Final = 2_000
OUTLAST_MS: Final = 15_000
CALM_IDLE_MS: Final = 20_000  # the same when nobody says anything any more
REST_MS: Final = 2 * CALM_IDLE_MS  # nothing has happened for so long, and nothing is waiting: it is over
RETRY_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 4.0)


class _Opener(Protocol):
    def __call__(self, name: str) -> Service: ...


@dataclass
class World:
    """Made from a plan; `run` lets it go on until everything is at rest."""

    plan: Plan
    scheduler: Scheduler = field(init=False)
    clock: SimulatedClock = field(init=False, default_factory=SimulatedClock)
    history: History = field(init=False, default_factory=History)
    receivers: Receivers = field(init=False, default_factory=Receivers)

    def __post_init__(self) -> None:
        plan = self.plan
        self.scheduler = Scheduler(plan.seed, self.clock)
        self.database = MemoryDatabase(self.clock, self.scheduler)
        self.faults = Faults(plan.faults, self.scheduler, self._broken, self._succeed, self._bury)
        self.log = SimulatedLog(
            {topic.name: 1 if topic.name == TICKS.name else PARTITIONS for topic in ALL_TOPICS},
            self.scheduler, self.faults.batch_fault, self.scheduler.draw,
        )  # fmt: skip
        self.log.lags_one_poll_in, self.log.max_lag_polls = plan.lags_one_poll_in, plan.max_lag_polls
        self.log.behind = self._behind_moves if plan.behind_moves else None
        self._copying_since: dict[int, int] = {}  # reshard -> simulated ms
        make: dict[Role, Callable[[str, MemoryState, int, int], Core]] = {
            Role.ROLLING: RollingCode,
            Role.MATCHER: MatcherCode,
        }
        sources = {Role.ROLLING: PRICES.name, Role.MATCHER: SHARD_LOG.name}
        self.jobs = {
            role: SimulatedJob(
                role,
                sources[role],
                make[role],
                self.log,
                self.scheduler,
                self.scheduler.draw,
                self.scheduler.sleep,
                self.idle_ms,
            )
            for role in (Role.ROLLING, Role.MATCHER)
        }
        self._started: dict[Role, int] = dict.fromkeys(Role, 0)
        self._executors: dict[str, SimulatedExecutor] = {}
        self._leaders: dict[str, MemoryRuleRelayStore] = {}
        self._calm = False
        self._succeeded: set[str] = set()  # zombies: a cluster doesn't start an attempt again that it has replaced
        self._signature: tuple[Any, ...] = ()
        self._still_since_ms = 0
        self._openers: dict[Role, _Opener] = {
            Role.GATEWAY: self._gateway,
            Role.CONSUMER: self._consumer,
            Role.RULE_RELAY: self._rule_relay,
            Role.SWEEPER: self._sweeper,
            Role.TRIGGER_RELAY: self._trigger_relay,
            Role.NOTIFIER: self._notifier,
            Role.UPKEEP: self._upkeep,
        }
        self.operator = Operator(self)
        self.clients = Clients(self)

    # -- the run
    def run(self) -> None:
        """Raises StuckError when it does not come to rest, and whatever a service raised that it must not raise."""
        self.operator.declare()
        self.history.watch(self.database)
        self.scheduler.interference = self.faults
        for role, instances in self.plan.instances.items():
            for _ in range(instances):
                self._start(role)
        scripts = [self.scheduler.spawn("source", Role.SOURCE, partial(play_source, self))]
        scripts.append(self.scheduler.spawn("operator", Role.OPERATOR, self.operator.play))
        scripts += self.clients.spawn()
        last_turn = self.faults.last_turn
        self.scheduler.run(
            lambda: all(script.greenlet.dead for script in scripts) and self.scheduler.turn > last_turn, MAX_TURNS
        )
        self.faults.calm()
        try:
            if self.plan.live:
                self._outlast()
            self._calm, self.log.lags_one_poll_in, self.log.behind = True, 0, None
            self.scheduler.run(self._at_rest, MAX_TURNS)
        except StuckError as error:
            raise StuckError(f"{error}; waiting: {', '.join(self.waiting())}") from None

    def _outlast(self) -> None:
        """A live feed's promises never end: some more of them, until all has been said, then its gateway stops."""
        until_ms = self.clock.now_ms + OUTLAST_MS

        def over() -> bool:
            waiting = any(row["published_at"] is None for row in self.database.rows("feed_controls"))
            return self.clock.now_ms >= until_ms and not self._unmarked() and not waiting

        self.scheduler.run(over, MAX_TURNS)
        for task in [task for task in self.scheduler.tasks if task.role == Role.GATEWAY]:
            self.scheduler.kill(task)

    def close(self) -> None:
        """End every task."""
        self.scheduler.interference = None
        self.scheduler.close()

    def waiting(self) -> list[str]:
        """What is left to do."""
        ends = {topic.name: self.log.memory.ends(topic.name) for topic in ALL_TOPICS}
        found: list[str] = [role for role, job in self.jobs.items() if not job.idle()]
        for topic in (CANDIDATES.name, TRIGGERS.name):
            positions = {
                row["partition"]: row["next_offset"]
                for row in self.database.rows("consumer_positions")
                if row["topic"] == topic
            }
            if positions != {partition: end for partition, (_, end) in ends[topic].items()}:
                found.append(f"reader of {topic}")
        if self._unmarked():
            found.append("source")
        for table in ("rule_commands", "feed_controls", "triggers"):
            found += [table for row in self.database.rows(table) if row["published_at"] is None][:1]
        for table in ("reshards", "rebuilds"):
            found += [table for row in self.database.rows(table) if row["phase"] != "DONE"][:1]
        open_rows = [row for row in self.database.rows("deliveries") if row["status"] in ("PENDING", "SENDING")]
        return [*found, *(["deliveries"] if open_rows else [])]

    def _unmarked(self) -> bool:
        """Whether a bucket has not told the last word of its source yet, which is a marker."""
        marked = {message.body["feed"] for message in self.plan.messages if message.body.get("type") == "marker"}
        told = {row["shard"] for row in self.database.rows("shard_progress") if row["marker_id"]}
        return any(
            bucket_shard(feed.name, bucket) not in told
            for feed in self.plan.feeds
            if feed.name in marked
            for bucket in range(feed.buckets)
        )

    def _at_rest(self) -> bool:
        signature = (self.log.memory.added, self.history.changes, len(self.scheduler.tasks))
        if signature != self._signature:
            self._signature, self._still_since_ms = signature, self.clock.now_ms
            return False
        return self.clock.now_ms - self._still_since_ms >= REST_MS and not self.waiting()

    # -- processes
    def _start(self, role: Role, after_ms: int = 0) -> None:
        self._started[role] += 1
        name = f"{role}-{self._started[role]}"
        self.scheduler.spawn(name, role, partial(self._live, role, name, after_ms))

    def _live(self, role: Role, name: str, after_ms: int) -> None:
        """A process under its supervisor: what passes is tried again, anything else is a fault of ours."""
        if after_ms:
            self.scheduler.sleep(after_ms)
        backoff_ms = 50
        while True:
            service: Service | None = None
            try:
                if role in self.jobs:
                    self.jobs[role].run()
                    return  # it was a zombie, its successor runs
                else:
                    service = self._openers[role](name)
                    backoff_ms = self._serve(service)
            except PASSING as error:
                self.scheduler.reached[f"passed:{role}:{type(error).__name__}"] += 1
                if role in self.jobs and name in self._succeeded:
                    return
                self._close(service, name)
                self.scheduler.sleep(backoff_ms)
                backoff_ms = min(backoff_ms * 2, 1_000)

    def _serve(self, service: Service) -> int:
        idle_ms = 0
        while True:
            idle_ms = 0 if service.step() else self.idle_ms(idle_ms)
            if idle_ms:
                self.scheduler.sleep(idle_ms)

    def idle_ms(self, before_ms: int) -> int:
        """The next rest of who found nothing to do after a rest of `before_ms`."""
        most_ms = CALM_IDLE_MS if self._calm else LIVE_IDLE_MS if self.plan.live else MAX_IDLE_MS
        return min(most_ms, before_ms * 2 + 10)

    def _close(self, service: Service | None, name: str) -> None:
        if service is None:
            return
        executor = self._executors.get(name)
        if executor is not None:
            # a close waits for sends by the real clock: here they come to their end first
            self.scheduler.wait("notifier.close", lambda: not executor.is_sending())
        try:
            service.close()
        except PASSING:
            self.scheduler.reached["close failed"] += 1

    def _broken(self) -> Exception:
        return DatabaseAwayError("simulated: the connection is broken")

    def await_phase(self, phase: str) -> None:
        """For a task: until a reshard is in it, or long enough; "": not at all."""
        until_ms = self.clock.now_ms + AWAIT_PHASE_MS
        while phase and self.clock.now_ms < until_ms and not self._is_in(phase):
            self.scheduler.sleep(20)

    def _is_in(self, phase: str) -> bool:
        return any(row["phase"] == phase for row in self.database.rows("reshards"))

    def _behind_moves(self, topic: str) -> frozenset[int]:
        """For a while from COPYING on: partitions of the shards that a symbol leaves."""
        found: set[int] = set()
        if topic != SHARD_LOG.name:
            return frozenset()
        for row in self.database.rows("reshards"):
            if row["phase"] in ("COPYING", "ENDING"):
                since_ms = self._copying_since.setdefault(row["reshard_id"], self.clock.now_ms)
                if self.clock.now_ms - since_ms < BEHIND_MOVES_MS:
                    feed = next(feed for feed in self.plan.feeds if row["symbol"] in feed.symbols)
                    old = SymbolRoute(row["symbol"], feed.name, feed.buckets, row["old_shards"])
                    found |= {partition_of(shard.encode(), PARTITIONS) for shard in old.all_shards()}
        return frozenset(found)

    def _succeed(self, task: Task, fault: Fault) -> None:
        """A process is about to die, or to stand still: somebody starts another one."""
        role = Role(task.role)
        if fault.kind is FaultKind.STATE_LOST:
            self.jobs[role].lose_state()
        elif fault.kind is FaultKind.OLDER_CHECKPOINT:
            self.jobs[role].forget_newest(1 + fault.amount % 2)
        if fault.kind is FaultKind.ZOMBIE:
            self._succeeded.add(task.name)
        leader = self._leaders.get(task.name)
        if leader is not None and fault.kind is FaultKind.ZOMBIE and fault.amount % 2:
            leader.break_session()  # the server has given it up for dead; it doesn't know
        self._start(role, 20 + 4 * fault.amount)

    def _bury(self, task: Task) -> None:
        """What dies with a process: its threads, its sessions."""
        executor = self._executors.get(task.name)
        if executor is not None:
            executor.kill()
        leader = self._leaders.get(task.name)
        if leader is not None:
            leader.break_session()

    # -- services
    def _gateway(self, name: str) -> Service:
        return FeedGateway(
            store=MemoryFeedStore(self.database),
            source=KafkaJsonSource(self.log.reader(), TICKS.name, TICKS.name, self.clock),
            writer=self.log.writer(),
            prices=self.log.reader(),
            clock=self.clock,
            served=Served(),
        )

    def _consumer(self, name: str) -> Service:
        return Consumer(
            MemoryFinalizerStore(self.database), self.log.reader(), self.log.writer(), self.clock,
            candidates=CANDIDATES.name, dead_letters=DEAD_LETTERS.name,
        )  # fmt: skip

    def _rule_relay(self, name: str) -> Service:
        store = self._leaders[name] = MemoryRuleRelayStore(self.database)
        return RuleRelay(store, self.log.writer(), shard_log=SHARD_LOG.name)

    def _sweeper(self, name: str) -> Service:
        return Sweeper(MemoryFinalizerStore(self.database), self.clock)

    def _upkeep(self, name: str) -> Service:
        resharder = Resharder(MemoryReshardStore(self.database), self.clock)
        return Together(resharder, Rebuilder(MemoryRebuildStore(self.database)))

    def _trigger_relay(self, name: str) -> Service:
        return TriggerRelay(
            MemoryTriggerRelayStore(self.database), self.log.writer(), triggers=TRIGGERS.name,
            dead_letters=DEAD_LETTERS.name,
        )  # fmt: skip

    def _notifier(self, name: str) -> Service:
        executor = self._executors[name] = SimulatedExecutor(self.scheduler, name)
        channel = SimulatedChannel(self.receivers, self.scheduler, self.faults.send_fault)
        return Notifier(
            MemoryDeliveryStore(self.database), self.log.reader(), self.log.writer(), self.clock,
            channels={"email": channel, "webhook": channel}, executor=executor,
            random=lambda: self.scheduler.draw(256) / 256, triggers=TRIGGERS.name, dead_letters=DEAD_LETTERS.name,
            retry_seconds=RETRY_SECONDS, pause=self.clock.wait,
        )  # fmt: skip
