"""Those around the system: the source of prices, the clients of the API, the operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import orjson
from pydantic import TypeAdapter

from api.alerts.schemas import NewAlertRequest
from api.alerts.service import AlertService
from api.principal import ADMIN_SCOPE, ALERTS_SCOPE, Principal
from api.problems import ProblemError
from api.times import format_time_ms
from contracts.topics import TICKS
from contracts.vocabulary import Status
from simulation.database.api_database import MemoryApiDatabase, MemoryTransaction
from simulation.database.errors import DatabaseAwayError
from simulation.database.rebuild_store import MemoryRebuildStore
from simulation.database.reference_store import MemoryReferenceStore
from simulation.plan import CLIENTS, Call, Role, Word
from simulation.scheduler import Task
from sql.reference_store import DeclarationError, FeedSettings

if TYPE_CHECKING:
    from simulation.world import World

ATTEMPTS: Final = 4
RETRY_MS: Final = 40
MARKET_CLOCK_BOUND_MS: Final = 10_000
REQUESTS: Final = TypeAdapter(NewAlertRequest)


def play_source(world: World) -> None:
    """One partition, so that its order is the order."""
    writer = world.log.writer()
    for message in world.plan.messages:
        wait_ms = max(message.after_ms, message.at_ms - world.clock.now_ms)
        if wait_ms:
            world.scheduler.sleep(wait_ms)
        world.await_phase(message.phase)
        body = message.body
        at_ms = body.get("ts", 0)
        writer.append(TICKS.name, str(body.get("symbol")).encode(), orjson.dumps(body), at_ms)
        writer.flush()


@dataclass
class Made:
    """What a client knows of its create. `alert_id` None: it was never told."""

    owner: int
    key: str
    call: Call
    alert_id: int | None = None
    refused: str | None = None
    told: list[str] = field(default_factory=list)  # statuses, as its later calls saw them


class Clients:
    """Each plays its calls one after the other; a lost answer is asked for again under the same key."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.made: list[Made] = []
        self.foreign: list[str] = []  # what one owner saw of another
        self.answers: Counter[str] = Counter()

    def spawn(self) -> list[Task]:
        scheduler = self._world.scheduler
        return [
            scheduler.spawn(f"client-{number}", Role.CLIENT, partial(self._play, number)) for number in range(CLIENTS)
        ]

    def _play(self, client: int) -> None:
        world = self._world
        service = AlertService(MemoryApiDatabase(world.database), world.clock, MARKET_CLOCK_BOUND_MS)
        mine: list[Made] = []
        for number, call in enumerate(world.plan.calls):
            if call.client != client and not call.twin:
                continue
            if call.after_ms:
                world.scheduler.sleep(call.after_ms)
            world.await_phase(call.phase)
            if call.action == "create":
                made = Made(call.owner, f"key-{number}", call)
                mine.append(made)
                self.made.append(made)
                self._attempt(call, partial(self._create, service, made))
            elif mine:
                self._attempt(call, partial(self._ask, service, call, mine[call.alert % len(mine)]))

    def _attempt(self, call: Call, work: Callable[[], None]) -> None:
        for _ in range(ATTEMPTS):
            try:
                work()
            except DatabaseAwayError:
                self.answers[f"{call.action}: away"] += 1
            except ProblemError as problem:
                self.answers[f"{call.action}: {problem.code}"] += 1
                if problem.code != "unavailable" and not (call.action == "create" and call.created_at_ms is None):
                    return
            else:
                self.answers[f"{call.action}: ok"] += 1
                return
            self._world.scheduler.sleep(RETRY_MS)

    def _create(self, service: AlertService, made: Made) -> None:
        body = dict(made.call.request or {})
        if made.call.created_at_ms is not None:
            body["created_at"] = format_time_ms(made.call.created_at_ms)
        if "expires_at" in body:
            body["expires_at"] = format_time_ms(body["expires_at"])
        try:
            created = service.create(principal(made.owner), REQUESTS.validate_python(body), made.key)
        except ProblemError as problem:
            made.refused = problem.code
            raise
        made.alert_id, made.refused = created.alert.alert_id, None

    def _ask(self, service: AlertService, call: Call, made: Made) -> None:
        who = principal(call.owner)
        if call.action == "page":
            found, _ = service.page(who, None, None, None, 50)
            self.foreign += [f"page of {call.owner}" for alert in found if alert.owner_id != who.owner_id]
            return
        if made.alert_id is None:
            return
        moves = {"cancel": service.cancel, "pause": service.pause, "resume": service.resume, "find": service.find}
        alert = moves[call.action](who, made.alert_id)
        if call.owner != made.owner:
            self.foreign.append(f"{call.action} of alert {made.alert_id} by {call.owner}")
        made.told.append(alert.status)
        if call.action == "cancel" and alert.status not in (Status.CANCELLED, Status.TRIGGERED, Status.EXPIRED):
            self.foreign.append(f"cancel of alert {made.alert_id} left it {alert.status}")


def principal(owner: int) -> Principal:
    """Owners are counted from 1 in the database. All may set created_at, as the keys of a replay may."""
    return Principal(owner + 1, f"key{owner}", frozenset({ALERTS_SCOPE, ADMIN_SCOPE}))


def _add_owner(name: str, channels: int, transaction: MemoryTransaction) -> dict[str, int]:
    """Its addresses."""
    owner = transaction.owners.insert(name, None)
    assert owner is not None
    addresses = {}
    for number in range(channels):
        address = f"{number}@{name}.example"
        transaction.channels.insert(owner.owner_id, ("email", "webhook")[number], address, None, channels)
        addresses[address] = owner.owner_id
    return addresses


class Operator:
    """Declares feeds, instruments and owners, then says what its plan has."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._reference = MemoryReferenceStore(world.database)
        self._rebuilds = MemoryRebuildStore(world.database)

    def declare(self) -> None:
        """Before anything runs."""
        plan, database = self._world.plan, self._world.database
        for feed in plan.feeds:
            mode: Literal["live", "replay"] = "live" if plan.live else "replay"
            self._reference.create_feed(feed.name, feed.buckets, mode, FeedSettings(**feed.settings))
            for symbol, decimals in feed.symbols.items():
                self._reference.add_instrument(symbol, feed.name, decimals)
        owners = MemoryApiDatabase(database)
        for owner, channels in enumerate(plan.channels):
            found = owners.transact(partial(_add_owner, f"owner{owner}", channels))
            self._world.receivers.owner_of |= found

    def play(self) -> None:
        for word in self._world.plan.words:
            self._world.scheduler.sleep(word.after_ms)
            for _ in range(ATTEMPTS):
                try:
                    self._say(word)
                except DatabaseAwayError:
                    self._world.scheduler.sleep(RETRY_MS)
                except DeclarationError:
                    break
                else:
                    break

    def _say(self, word: Word) -> None:
        match word.action:
            case "split":
                self._reference.add_split(word.symbol, **word.arguments)
            case "resume":
                self._reference.resume(word.symbol)
            case "reshard":
                self._reference.set_routing(word.symbol, **word.arguments)
            case "rebuild":
                self._rebuilds.request(None, word.symbol or None, repair=bool(word.arguments["repair"]))
            case other:
                raise AssertionError(other)
