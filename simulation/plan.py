"""What happens in one simulated world, drawn from a seed: prices, calls, an operator's words, faults.

A plan is plain data, so that a failing one can be shortened: whatever is left out, the rest still plays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, Final

from simulation.clock import START_WALL_MS

LIVE_SHARE: Final = 0.01  # of the plans: they take long, as a promise a second comes of them
START_MS: Final = 1_767_225_600_000
RUBBISH: Final = ("0", "-3.5", "NaN", "1e999", "", "12,5", " 5", "0.000000001")
THRESHOLDS_BPS: Final = (1, 5, 10, 25, 50, 100, 300)
OWNERS: Final = 2
CLIENTS: Final = 2


class Role(StrEnum):
    """The kinds of processes."""

    GATEWAY = "gateway"
    ROLLING = "rolling"
    MATCHER = "matcher"
    CONSUMER = "consumer"
    RULE_RELAY = "rule-relay"
    SWEEPER = "sweeper"
    TRIGGER_RELAY = "trigger-relay"
    NOTIFIER = "notifier"
    UPKEEP = "shard-upkeep"
    CLIENT = "client"
    OPERATOR = "operator"
    SOURCE = "source"
    SEND = "send"


class FaultKind(StrEnum):
    """What can befall a process."""

    KILL = "kill"
    ZOMBIE = "zombie"  # it stands still while a successor is started, then wakes up
    DATABASE_AWAY = "database-away"  # the connection breaks before the effect
    COMMIT_UNKNOWN = "commit-unknown"  # it breaks during COMMIT, which takes place
    LOG_REFUSED = "log-refused"
    LOG_HOLE = "log-hole"
    LOG_TAIL_LOST = "log-tail-lost"
    LOG_UNACKNOWLEDGED = "log-unacknowledged"
    LOG_TWICE = "log-twice"
    OLDER_CHECKPOINT = "older-checkpoint"
    STATE_LOST = "state-lost"
    CLOCK_JUMP = "clock-jump"
    SEND_LOST_ANSWER = "send-lost-answer"
    SEND_REFUSED = "send-refused"
    SEND_DEAD = "send-dead"
    SEND_SLOW = "send-slow"


SERVICES: Final = (
    Role.GATEWAY, Role.ROLLING, Role.MATCHER, Role.CONSUMER, Role.RULE_RELAY, Role.SWEEPER, Role.TRIGGER_RELAY,
    Role.NOTIFIER,
)  # fmt: skip
_OF_DATABASE: Final = tuple(role for role in SERVICES if role not in (Role.ROLLING, Role.MATCHER))
_OF_LOG: Final = tuple(role for role in SERVICES if role is not Role.SWEEPER)
AFFECTED: Final[Mapping[FaultKind, Sequence[Role]]] = {
    FaultKind.KILL: SERVICES,
    FaultKind.ZOMBIE: SERVICES,
    FaultKind.DATABASE_AWAY: (*_OF_DATABASE, Role.CLIENT, Role.OPERATOR),
    FaultKind.COMMIT_UNKNOWN: (*_OF_DATABASE, Role.CLIENT, Role.OPERATOR),
    FaultKind.LOG_REFUSED: _OF_LOG,
    FaultKind.LOG_HOLE: _OF_LOG,
    FaultKind.LOG_TAIL_LOST: _OF_LOG,
    FaultKind.LOG_UNACKNOWLEDGED: _OF_LOG,
    FaultKind.LOG_TWICE: _OF_LOG,
    FaultKind.OLDER_CHECKPOINT: (Role.ROLLING, Role.MATCHER),
    FaultKind.STATE_LOST: (Role.ROLLING, Role.MATCHER),
    FaultKind.CLOCK_JUMP: (Role.OPERATOR,),
    FaultKind.SEND_LOST_ANSWER: (Role.SEND,),
    FaultKind.SEND_REFUSED: (Role.SEND,),
    FaultKind.SEND_DEAD: (Role.SEND,),
    FaultKind.SEND_SLOW: (Role.SEND,),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """At the first fitting moment of `role` from `turn` on. `amount`: below 256, what a kind makes of it."""

    turn: int
    kind: FaultKind
    role: Role
    amount: int


@dataclass(frozen=True, slots=True)
class Feed:
    """`sequenced`: its source numbers its ticks."""

    name: str
    buckets: int
    symbols: Mapping[str, int]  # symbol -> decimals
    sequenced: bool
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One record of ticks.v1, `after_ms` after the one before, and not before `at_ms` (from the beginning).

    `phase`: it is held until a reshard is in that phase, or none comes to it for a while.
    """

    after_ms: int
    body: Mapping[str, Any]
    at_ms: int = 0
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a client. `alert`: which of its creates so far (by number, modulo), for all but a create.

    `phase`: as in Message.
    """

    client: int
    after_ms: int
    action: str  # create, cancel, pause, resume, find, page
    owner: int
    alert: int = 0
    request: Mapping[str, Any] | None = None
    created_at_ms: int | None = None
    twin: bool = False  # every client makes this create, under the same idempotency key
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Word:
    """An operator's: split, resume, reshard, rebuild."""

    after_ms: int
    action: str
    symbol: str
    arguments: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is not the scheduler's choice."""

    seed: int
    feeds: Sequence[Feed]
    messages: Sequence[Message]
    calls: Sequence[Call]
    words: Sequence[Word]
    faults: Sequence[Fault]
    instances: Mapping[Role, int]
    channels: Sequence[int]  # of each owner
    lags_one_poll_in: int = 0  # a reader leaves a partition alone for a while, as one of several tasks may; 0: never
    max_lag_polls: int = 16
    behind_moves: bool = False  # the matcher leaves old shards' partitions alone while their rules are copied
    live: bool = False  # prices of the wall clock's time, whose frontier the gateway promises; else a replay


def make_plan(seed: int) -> Plan:
    """The plan of a seed."""
    random = Random(f"plan/{seed}")  # noqa: S311  (a simulation's seed, no secret)
    live = random.random() < LIVE_SHARE
    size = 2 if live else random.choice((1, 1, 1, 1, 1, 1, 1, 2, 2, 4))
    step_ms = random.choice((5_000, 10_000) if live else (5_000, 20_000, 20_000, 60_000))
    feeds = _feeds(random, step_ms)
    market = _Market(random, feeds, step_ms, live)
    rounds = random.randrange(14, 20) if live else random.randrange(5, 9) * size
    for _ in range(rounds):
        market.play_round()
    market.end()
    calls = _calls(random, market, random.randrange(3, 8) * size)
    turns = 4_000 if live else 450 * size
    faults = _faults(random, random.choice((0, 1, 2, 3, 4, 6)) * min(size, 2), turns)
    instances = {role: random.choice((1, 1, 2)) for role in SERVICES}
    instances |= {Role.GATEWAY: 1, Role.ROLLING: 1, Role.MATCHER: 1}
    channels = [random.choice((0, 1, 2)) for _ in range(OWNERS)]
    if live:  # a clock that is wrong makes the gateway refuse prices, and then nobody knows which are right
        faults = [fault for fault in faults if fault.kind is not FaultKind.CLOCK_JUMP]
    return Plan(seed, feeds, market.messages, calls, market.words, faults, instances, channels, live=live)


def _feeds(random: Random, step_ms: int) -> list[Feed]:
    feeds = []
    for name in ("stocks", "coins")[: random.choice((1, 1, 2))]:
        count = random.choice((1, 2, 3))
        symbols = {f"{name[0].upper()}{number}": random.choice((0, 2, 4)) for number in range(count)}
        ages = dict.fromkeys(("1m", "1h"), random.choice((1, 3, 100)) * step_ms)
        settings = {"reorder_ms": random.choice((0, 2, 4)) * step_ms, "reference_age_ms": ages}
        feeds.append(Feed(name, random.choice((1, 2)), symbols, random.random() < 0.7, settings))
    return feeds


class _Market:
    """Walks the prices and writes down what the sources and the operator say."""

    def __init__(self, random: Random, feeds: Sequence[Feed], step_ms: int, live: bool) -> None:
        self.random, self.feeds, self.step_ms, self.live = random, feeds, step_ms, live
        self.start_ms = START_WALL_MS if live else START_MS
        self.pace = 40 if live else 1  # how much longer everybody waits
        self.messages: list[Message] = []
        self.words: list[Word] = []
        self.now_ms = self.start_ms
        self.symbols = {symbol: feed for feed in feeds for symbol in feed.symbols}
        self.price = {
            symbol: random.randrange(500, 5_000) * 10 ** feed.symbols[symbol] for symbol, feed in self.symbols.items()
        }
        self._sequence = dict.fromkeys(self.symbols, 0)
        self._session = dict.fromkeys(self.symbols, 0)
        self._held: list[tuple[int, Mapping[str, Any]]] = []  # what is delayed: due round, message
        self._round = 0

    def play_round(self) -> None:
        self._round += 1
        self.now_ms += self.step_ms
        for due, body in [held for held in self._held if held[0] <= self._round]:
            self._held.remove((due, body))
            self._say(body)
        for symbol in self.symbols:
            for _ in range(self.random.choice((1, 1, 1, 1, 2))):
                self._tick(symbol)
        if self.random.random() < 0.5 and not self.live:
            feed = self.random.choice(self.feeds)
            back = self.random.choice((0, 1, 2, 5)) * self.step_ms
            self._say({"type": "heartbeat", "ts": self.now_ms - back, "feed": feed.name})

    def end(self) -> None:
        for _, body in self._held:
            self._say(body)
        for feed in self.feeds:
            if not self.live:
                self._say({"type": "flush", "feed": feed.name})
            if self.random.random() < 0.7 and not self.live:
                later = self.now_ms + self.random.choice((0, 10, 100)) * self.step_ms
                self._say({"type": "heartbeat", "ts": later, "feed": feed.name})
            self._say({"type": "marker", "marker_id": 1, "feed": feed.name})

    def _tick(self, symbol: str) -> None:
        random, feed = self.random, self.symbols[symbol]
        if random.random() < 0.1:
            return
        move = random.gauss(0, 0.003) if random.random() < 0.8 else random.choice((-0.08, -0.01, 0.0, 0.01, 0.08))
        self.price[symbol] = max(1, round(self.price[symbol] * (1 + move)))
        if random.random() < 0.05:
            self._split(symbol)
        body: dict[str, Any] = {
            "symbol": symbol, "feed": feed.name, "ts": self.now_ms + random.choice((0, 0, 0, 1, 999)),
            "price": decimal_text(self.price[symbol], feed.symbols[symbol]),
        }  # fmt: skip
        if feed.sequenced:
            if random.random() < 0.02:
                self._session[symbol], self._sequence[symbol] = self._session[symbol] + 1, 0
            self._sequence[symbol] += 1 if random.random() < 0.98 else 2
            body |= {"seq": self._sequence[symbol], "session": self._session[symbol]}
        if random.random() < 0.03:
            self._say({**body, "price": random.choice(RUBBISH)})
            if random.random() < 0.5:
                return
        if random.random() < 0.02:
            nobody = random.choice(("NOSUCH", 7, None))
            self._say({"symbol": nobody, "feed": feed.name, "ts": self.now_ms, "price": "5"})
        if random.random() < 0.1:
            self._held.append((self._round + random.choice((1, 1, 2, 8)), body))
            if random.random() < 0.7:
                return
        self._say(body)
        if random.random() < 0.05:
            self._say(body)

    def _split(self, symbol: str) -> None:
        new, old = self.random.choice(((2, 1), (3, 1), (1, 10), (3, 2)))
        self.price[symbol] = max(1, round(self.price[symbol] * old / new))
        arguments = {"effective_from_ms": self.now_ms, "new_shares": new, "old_shares": old}
        self.words.append(Word(self.pace * self.random.choice((0, 5, 100, 400)), "split", symbol, arguments))
        if self.random.random() < 0.6:
            self.words.append(Word(self.pace * self.random.choice((1, 50, 300)), "resume", symbol, {}))

    def _say(self, body: Mapping[str, Any]) -> None:
        at_ms = self.now_ms - self.start_ms if self.live else 0
        self.messages.append(Message(self.random.choice((0, 0, 0, 0, 0, 5, 40)), body, at_ms))


def _calls(random: Random, market: _Market, creates: int) -> list[Call]:
    """Each client its own calls, mixed; a create asks for a price near the last one."""
    calls = []
    for number in range(creates):
        client, owner = random.randrange(CLIENTS), random.randrange(OWNERS)
        symbol = random.choice(list(market.symbols))
        decimals = market.symbols[symbol].symbols[symbol]
        request: dict[str, Any] = {"symbol": symbol}
        if random.random() < 0.75:
            request |= {
                "kind": "change", "window": random.choice(("1m", "1m", "1m", "1h")),
                "direction": random.choice(("UP", "DOWN", "EITHER")), "threshold_bps": random.choice(THRESHOLDS_BPS),
            }  # fmt: skip
        else:
            target = max(1, round(market.price[symbol] * (1 + random.gauss(0, 0.02))))
            request |= {
                "kind": "price", "direction": random.choice(("ABOVE", "BELOW")),
                "target": decimal_text(target, decimals),
            }  # fmt: skip
        at_ms = market.start_ms + random.randrange(0, 4) * market.step_ms
        if random.random() < 0.4:
            request["expires_at"] = at_ms + random.randrange(1, 12) * market.step_ms
        created_at_ms = at_ms if random.random() < 0.85 and not market.live else None
        calls.append(
            Call(
                client,
                market.pace * random.choice((0, 10, 40, 150)),
                "create",
                owner,
                0,
                request,
                created_at_ms,
                twin=random.random() < 0.1,
            )
        )
        calls += _later_calls(random, market, client, owner, number)
    return calls


def _later_calls(random: Random, market: _Market, client: int, owner: int, created: int) -> list[Call]:
    """Anything with any alert; and now and then one is paused and resumed at once, its old claim still under way."""
    calls = []
    for _ in range(random.choice((0, 0, 0, 1, 2, 3))):
        action = random.choice(("cancel", "pause", "pause", "resume", "resume", "find", "page"))
        who = owner if random.random() < 0.9 else 1 - owner
        calls.append(Call(client, market.pace * random.choice((0, 5, 60, 200)), action, who, random.randrange(8)))
    if random.random() < 0.2:
        alert, after_ms = random.randrange(created + 1), random.choice((100, 300, 600))
        calls.append(Call(client, market.pace * after_ms, "pause", owner, alert))
        calls.append(Call(client, random.choice((0, 0, 20)), "resume", owner, alert))
    return calls


def _faults(random: Random, count: int, turns: int) -> list[Fault]:
    """Of all kinds, or in one plan of four the same again and again: some harm takes several in a row."""
    kinds = [kind for kind in FaultKind for _ in range(5 if kind in (FaultKind.KILL, FaultKind.ZOMBIE) else 2)]
    focus = None
    if random.random() < 0.25:
        kind = random.choice(list(FaultKind))
        focus, count = (kind, random.choice(AFFECTED[kind])), count + 4
    faults = []
    for _ in range(count):
        kind = random.choice(kinds)
        struck = focus or (kind, random.choice(AFFECTED[kind]))
        faults.append(Fault(random.randrange(turns), *struck, random.randrange(256)))
    return sorted(faults, key=lambda fault: fault.turn)


def decimal_text(scaled: int, decimals: int) -> str:
    """A scaled price as a feed prints it."""
    whole, part = divmod(scaled, 10**decimals)
    return f"{whole}.{part:0{decimals}d}" if decimals else str(whole)
