"""Plans in which symbols move between shards and shards are read out while all else goes on."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from simulation.plan import CLIENTS, OWNERS, START_MS, Call, Fault, FaultKind, Plan, Role, Word

UPKEEP_FAULTS: Final = (FaultKind.KILL, FaultKind.ZOMBIE, FaultKind.DATABASE_AWAY, FaultKind.COMMIT_UNKNOWN)
MAX_SHARDS: Final = 3


def with_moves(plan: Plan) -> Plan:
    """A plan with moves and rebuilds in it, drawn from its seed."""
    random = Random(f"moves/{plan.seed}")  # noqa: S311  (a simulation's seed, no secret)
    symbols = [symbol for feed in plan.feeds for symbol in feed.symbols]
    words = list(plan.words)
    favourite = random.choice(symbols)
    for _ in range(random.choice((1, 2, 4, 8))):
        symbol = favourite if random.random() < 0.7 else random.choice(symbols)
        if random.random() < 0.75:
            word = Word(_pause(random), "reshard", symbol, {"shards": random.randint(1, MAX_SHARDS)})
        else:
            wanted = random.choice((symbol, ""))
            word = Word(_pause(random), "rebuild", wanted, {"repair": int(random.random() < 0.6)})
        words.insert(random.randrange(len(words) + 1), word)
    calls = [call for _ in range(random.choice((4, 8, 16))) for call in _calls(random, favourite)] + list(plan.calls)
    faults = list(plan.faults)
    last_turn = max([450, *(fault.turn for fault in faults)])
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        faults.append(
            Fault(random.randrange(last_turn), random.choice(UPKEEP_FAULTS), Role.UPKEEP, random.randrange(256))
        )
    instances = {**plan.instances, Role.UPKEEP: random.choice((1, 1, 2))}
    faults.sort(key=lambda fault: fault.turn)
    messages = [replace(message, after_ms=message.after_ms + _slower(random)) for message in plan.messages]
    return replace(plan, messages=messages, words=words, calls=calls, faults=faults, instances=instances)


def _slower(random: Random) -> int:
    """Milliseconds more: a move takes seconds, and ticks are to come in each of its phases."""
    return random.choice((0, 100, 400, 800))


def _calls(random: Random, symbol: str) -> list[Call]:
    """A create on the symbol that moves, crossed soon or late; some are paused and resumed on the way."""
    request = {
        "symbol": symbol, "kind": "change", "window": random.choice(("1m", "1m", "1h")),
        "direction": random.choice(("UP", "DOWN", "EITHER")),
        "threshold_bps": random.choice((5, 100, 300, 600, 700, 750)),
    }  # fmt: skip
    client, owner = random.randrange(CLIENTS), random.randrange(OWNERS)
    calls = [Call(client, random.choice((0, 0, 20, 400, 1_000)), "create", owner, 0, request, START_MS)]
    if random.random() < 0.25:
        for action in ("pause", "resume"):
            calls.append(Call(client, random.choice((50, 400, 1_000)), action, owner, random.randrange(16)))
    return calls


def _pause(random: Random) -> int:
    """Milliseconds before the word: some follow the one before at once, most let it come to something."""
    return random.choice((0, 20, 100, 400, 400, 1_500))
