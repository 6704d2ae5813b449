"""Plans in which everything meets a move: a price that swings over every threshold, alerts that are made, paused,
resumed and over at any moment of it, and tasks that fall behind each other."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from finalizer.shard_ports import Phase
from simulation.plan import (
    AFFECTED,
    CLIENTS,
    OWNERS,
    SERVICES,
    START_MS,
    Call,
    Fault,
    FaultKind,
    Feed,
    Message,
    Plan,
    Role,
    Word,
    decimal_text,
)

SYMBOL: Final = "S0"
STEP_MS: Final = 20_000
SWINGS_BPS: Final = (0, 20, -20, 50, -50)
LEAPS_BPS: Final = (600, -600, 400)
PHASES: Final = tuple(str(phase) for phase in Phase if phase is not Phase.DONE)
TURNS: Final = 4_000
KINDS: Final = (FaultKind.KILL, FaultKind.ZOMBIE, FaultKind.STATE_LOST, FaultKind.OLDER_CHECKPOINT, FaultKind.LOG_TWICE)


def make_crowded_plan(seed: int) -> Plan:
    """The plan of a seed."""
    random = Random(f"crowd/{seed}")  # noqa: S311  (a simulation's seed, no secret)
    ages = {"1m": 100 * STEP_MS, "1h": 100 * STEP_MS}
    feed = Feed("stocks", random.choice((1, 2)), {SYMBOL: 2}, sequenced=True, settings={"reference_age_ms": ages})
    rounds = random.randrange(40, 90)
    counts = random.choice(((2,), (3,), (2, 1), (3, 1), (2, 3), (2, 1, 2), (3, 1, 3)))
    words = [
        Word(random.choice((3_000, 5_000) if place else (300, 1_000)), "reshard", SYMBOL, {"shards": shards})
        for place, shards in enumerate(counts)
    ]
    if random.random() < 0.3:
        again = Word(random.choice((0, 1_000)), "rebuild", SYMBOL, {"repair": random.randrange(2)})
        words.insert(random.randrange(len(words) + 1), again)
    instances = dict.fromkeys(SERVICES, 1) | {Role.UPKEEP: random.choice((1, 2))}
    return Plan(
        seed, [feed], _ticks(random, rounds), _calls(random, rounds), words, _faults(random), instances,
        channels=[0] * OWNERS, lags_one_poll_in=random.choice((0, 12, 12, 40)),
    )  # fmt: skip


def _ticks(random: Random, rounds: int) -> Sequence[Message]:
    """Small steps; now and then a leap over the thresholds, most of them when a move has come to some phase."""
    pace_ms, leaping = random.choice((100, 200, 300)), random.choice((0.03, 0.06, 0.15))
    messages = []
    for number in range(1, rounds + 1):
        leaps = random.random() < leaping
        price = 10_000 + random.choice(LEAPS_BPS if leaps else SWINGS_BPS)
        body = {
            "symbol": SYMBOL, "feed": "stocks", "ts": START_MS + number * STEP_MS, "price": decimal_text(price, 2),
            "seq": number, "session": 0,
        }  # fmt: skip
        phase = random.choice(PHASES) if leaps and random.random() < 0.7 else ""
        messages.append(Message(random.choice((0, pace_ms, 2 * pace_ms)), body, phase=phase))
        if random.random() < 0.4:
            messages.append(Message(0, {"type": "heartbeat", "ts": body["ts"], "feed": "stocks"}))
    later = START_MS + (rounds + random.choice((0, 1, 30))) * STEP_MS
    said: list[dict[str, Any]] = [{"type": "flush"}, {"type": "heartbeat", "ts": later}]
    said.append({"type": "marker", "marker_id": 1})
    return [*messages, *(Message(0, {**body, "feed": "stocks"}) for body in said)]


def _calls(random: Random, rounds: int) -> Sequence[Call]:
    calls: list[Call] = []
    made = [0] * CLIENTS
    for _ in range(random.randrange(15, 40)):
        client = random.randrange(CLIENTS)
        owner = client % OWNERS  # so that a client's calls are for alerts of its own
        request: dict[str, Any] = {
            "symbol": SYMBOL, "kind": "change", "window": "1m", "direction": random.choice(("UP", "DOWN", "EITHER")),
            "threshold_bps": random.choice((300, 500, 500, 900, 1_100)),
        }  # fmt: skip
        if random.random() < 0.6:
            request["expires_at"] = START_MS + random.randrange(5, rounds) * STEP_MS
        calls.append(Call(client, random.choice((0, 20, 200, 800)), "create", owner, 0, request, START_MS))
        made[client] += 1
        if random.random() < 0.3:
            alert = random.randrange(made[client])
            calls.append(Call(client, random.choice((50, 400, 1_000)), "pause", owner, alert))
            phase = random.choice((*PHASES, "", "", ""))
            calls.append(Call(client, random.choice((0, 0, 400)), "resume", owner, alert, phase=phase))
    return calls


def _faults(random: Random) -> Sequence[Fault]:
    faults = []
    for _ in range(random.choice((0, 1, 2, 4))):
        kind = random.choice(KINDS)
        role = random.choice((Role.ROLLING, Role.MATCHER, *AFFECTED[kind]))
        if kind is FaultKind.KILL and random.random() < 0.5:
            role = Role.UPKEEP
        if role not in AFFECTED[kind] and role is not Role.UPKEEP:
            continue
        faults.append(Fault(random.randrange(TURNS), kind, role, random.randrange(256)))
    if random.random() < 0.2:  # all that a rolling job has said of moves is said again
        late = random.randrange(TURNS // 2, TURNS)
        faults.append(Fault(late, FaultKind.STATE_LOST, Role.ROLLING, random.randrange(256)))
    return sorted(faults, key=lambda fault: fault.turn)
