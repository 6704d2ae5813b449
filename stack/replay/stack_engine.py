"""Scenarios through everything: HTTP, Kafka, both jobs, Postgres. Order is kept by barriers on positions.

Where a barrier is needed, and where not:

- tick after tick: none, one partition keeps their order;
- a control (settings, instrument, split, resume) after ticks: the gateway must have taken these, so a marker;
- ticks after a control: it must be in the price log, so its `published_at`;
- a create or cancel after ticks or controls: they must be finalized and swept, so a marker;
- ticks after a create: it must be ACTIVE; after a cancel: nothing, its transaction is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from api.times import format_time_ms
from contracts.event_time import parse_event_time
from contracts.topics import TICKS
from contracts.vocabulary import Kind, Status
from ports.clock import SystemClock
from ports.kafka import KafkaWriter
from stack.embedded import EmbeddedStack
from stack.progress import say
from stack.replay.core_engine import resolve_creation_times
from stack.replay.own_environment import OwnEnvironment, own_environment
from stack.replay.scenario import (
    Cancel,
    Create,
    Heartbeat,
    Instrument,
    Operation,
    Resume,
    Scenario,
    Settings,
    Split,
    Tick,
)  # fmt: skip
from stack.replay.tick_log import TickLog

SERVICES: Final = ("finalizer", "rule-relay", "sweeper", "api", "feeds")
SCENARIOS_AT_ONCE: Final = 4
REQUESTS_AT_ONCE: Final = 8
ACTIVATION_WAIT_S: Final = 30.0
DEFAULT_BUCKETS: Final = 4
CRITICAL: Final = 2  # syslog's; a broker that is away for a while is the barriers' to tell

Rows = list[dict[str, Any]]


def replay_through_stack(
    scenarios: Sequence[Scenario], buckets: int = DEFAULT_BUCKETS, stack: EmbeddedStack | None = None
) -> list[Rows]:
    """Result rows of each scenario. All share one environment, each with a feed and owners of its own."""
    with own_environment("replay", SERVICES, stack=stack) as own, ThreadPoolExecutor(SCENARIOS_AT_ONCE) as pool:

        def play(numbered: tuple[int, Scenario]) -> Rows:
            number, scenario = numbered
            rows = FeedReplay(own, f"s{number}", buckets, symbol_prefix=f"S{number}:").run(scenario)
            say(f"{scenario.name}: {len(rows) - 1} alerts")
            return rows

        return list(pool.map(play, enumerate(scenarios, 1)))


class FeedReplay:
    """One scenario as the life of one feed. `symbol_prefix` keeps symbols of several feeds apart."""

    def __init__(self, own: OwnEnvironment, feed: str, buckets: int, symbol_prefix: str = "") -> None:
        self._own = own
        self._feed = feed
        self._buckets = buckets
        self._prefix = symbol_prefix
        self._log = TickLog(
            KafkaWriter(own.stack.kafka, f"{own.environment.name}-{feed}", linger_ms=1, log_level=CRITICAL),
            TICKS.named(own.topic_prefix),
            feed,
            SystemClock(),
        )
        self._requests = ThreadPoolExecutor(REQUESTS_AT_ONCE)
        self._alert_ids: dict[str, tuple[str, int]] = {}  # scenario id -> (owner, alert_id)
        self._unfinalized = False  # something was sent since the last marker came out
        self._unpublished = False  # a control was written since the gateway last had published all
        own.admin.request("POST", "/v1/admin/feeds", json={"feed": feed, "buckets": buckets, "clock_mode": "replay"})

    def run(self, scenario: Scenario) -> Rows:
        """Result rows in the order of creation, then the counts."""
        creates: list[Create] = []
        for operation in _with_creation_times(scenario):
            if isinstance(operation, Create):
                creates.append(operation)
                continue
            self.create(creates)
            creates = []
            self.play(operation)
        self.create(creates)
        self.finish()
        return [*self.rows(), {"counts": self.counts()}]

    def play(self, operation: Operation) -> None:
        """Any operation but a create."""
        match operation:
            case Tick(symbol, fields):
                self._before_ticks()
                self._log.tick(self._prefix + symbol, fields)
                self._unfinalized = True
            case Heartbeat(frontier_ms):
                self._before_ticks()
                self._log.heartbeat(frontier_ms)
                self._unfinalized = True
            case Cancel(alert_id):
                self.barrier()
                owner, number = self._alert_ids[alert_id]
                self._own.client_of(owner).cancel_alert(number)
            case Settings() | Instrument() | Split() | Resume():
                if self._unfinalized:
                    self.barrier()
                self._declare(operation)
                self._unpublished = True
            case Create():
                self.create([operation])

    def create(self, creates: Iterable[Create]) -> list[dict[str, Any]]:
        """Creates that nothing lies between; ACTIVE when this returns. The alerts as the API shows them."""
        wanted = list(creates)
        if not wanted:
            return []
        self.barrier()
        owners = [self._owner(create.user) for create in wanted]
        clients = [self._own.client_of(owner) for owner in owners]
        made = list(self._requests.map(self._create, clients, wanted))
        for create, owner, alert in zip(wanted, owners, made, strict=True):
            self._alert_ids[create.id] = owner, alert["alert_id"]
        return made

    def barrier(self) -> None:
        """Everything so far is finalized."""
        self._before_ticks()
        if not self._unfinalized:
            return
        self._own.barriers.await_marker(self._feed, self._buckets, self._log.mark())
        self._unfinalized = False

    def finish(self) -> None:
        """The feed has ended and all that came of it is finalized."""
        self._before_ticks()
        self._log.finish()
        self._unfinalized = True
        self.barrier()
        self._requests.shutdown()

    def rows(self) -> Rows:
        """What became of each alert, as its owner sees it."""
        owners = {owner for owner, _ in self._alert_ids.values()}
        shown = {alert["alert_id"]: alert for owner in owners for alert in self._own.client_of(owner).alerts()}
        return [result_row(name, shown[number]) for name, (_, number) in self._alert_ids.items()]

    def counts(self) -> dict[str, int]:
        positions = self._own.barriers.positions(self._feed, self._buckets)
        return {name: sum(getattr(p, name) for p in positions) for name in ("rejected", "duplicate", "late")}

    # -- one operation --------------------------------------------------------------------------
    def _before_ticks(self) -> None:
        if self._unpublished:
            self._own.barriers.await_controls(self._feed)
            self._unpublished = False
            self._unfinalized = True

    def _declare(self, operation: Settings | Instrument | Split | Resume) -> None:
        admin = self._own.admin
        match operation:
            case Settings(reorder_ms, ages, max_ahead_ms):
                body: dict[str, Any] = {"reorder_ms": reorder_ms, "max_ahead_ms": max_ahead_ms}
                given = {name: value for name, value in body.items() if value is not None}
                admin.request(
                    "PUT", f"/v1/admin/feeds/{self._feed}/settings", json={**given, "reference_age_ms": dict(ages)}
                )
            case Instrument(symbol, decimals):
                body = {"symbol": self._prefix + symbol, "feed": self._feed, "decimals": decimals}
                admin.request("POST", "/v1/admin/instruments", json=body)
            case Split(symbol, new_shares, old_shares, effective_from_ms):
                body = {
                    "symbol": self._prefix + symbol, "effective_from": format_time_ms(effective_from_ms),
                    "new_shares": new_shares, "old_shares": old_shares,
                }  # fmt: skip
                admin.request("POST", "/v1/admin/splits", json=body)
            case Resume(symbol):
                admin.request("POST", "/v1/admin/resumes", json={"symbol": self._prefix + symbol})

    def _create(self, client: Any, create: Create) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": create.kind.value, "symbol": self._prefix + create.symbol, "direction": create.direction.value,
            "note": create.id,
        }  # fmt: skip
        if create.kind is Kind.CHANGE:
            body |= {"window": create.window, "threshold_bps": create.bps}
        else:
            body["target"] = create.target
        for name, at_ms in (("created_at", create.created_at_ms), ("expires_at", create.expires_at_ms)):
            if at_ms is not None:
                body[name] = format_time_ms(at_ms)
        key = f"{self._own.environment.name}/{self._feed}/{create.id}"
        alert = client.create_alert(body, key, ACTIVATION_WAIT_S)
        if alert["status"] == Status.PENDING:
            alert = self._await_activation(client, alert["alert_id"], create.id)
        return dict(alert)

    def _await_activation(self, client: Any, alert_id: int, name: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def missing() -> str:
            found[:] = [client.get_alert(alert_id)]
            return "it is PENDING" if found[0]["status"] == Status.PENDING else ""

        self._own.barriers.wait(f"alert {name} ({alert_id}) is not active", missing)
        return found[0]

    def _owner(self, user: str) -> str:
        return f"{self._feed}-{user}" if self._prefix else user


def result_row(name: str, alert: dict[str, Any]) -> dict[str, Any]:
    """A result row of an alert as the API shows it."""
    row: dict[str, Any] = {"id": name, "status": alert["status"]}
    trigger = alert["trigger"]
    if trigger is None:
        return row
    row |= {
        "event_time": parse_event_time(trigger["event_time"]), "seq": trigger["sequence"], "price": trigger["price"],
    }  # fmt: skip
    if alert["kind"] == Kind.CHANGE:
        row |= {
            "reference_ts": parse_event_time(trigger["reference_time"]), "reference_price": trigger["reference_price"],
            "previous_bps": trigger["previous_bps"], "current_bps": trigger["current_bps"],
        }  # fmt: skip
    return row


def _with_creation_times(scenario: Scenario) -> Sequence[Operation]:
    """Where a create leaves its time to the feed, the time by the scenarios' rule."""
    left_open = any(
        isinstance(operation, Create) and operation.created_at_ms is None for operation in scenario.operations
    )
    if not left_open:
        return scenario.operations
    times = resolve_creation_times(scenario)
    return [
        replace(operation, created_at_ms=times[operation.id]) if isinstance(operation, Create) else operation
        for operation in scenario.operations
    ]
