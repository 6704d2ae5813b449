"""Plans in which symbols move between shards and shards are read out while all else goes on."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from simulation.plan import Fault, FaultKind, Plan, Role, Word, make_plan

UPKEEP_FAULTS: Final = (FaultKind.KILL, FaultKind.ZOMBIE, FaultKind.DATABASE_AWAY, FaultKind.COMMIT_UNKNOWN)
MAX_SHARDS: Final = 3


def make_moving_plan(seed: int) -> Plan:
    """The plan of a seed with moves and rebuilds in it; what it draws beside them is the seed's."""
    random = Random(f"moves/{seed}")  # noqa: S311  (a simulation's seed, no secret)
    plan = make_plan(seed)
    symbols = [symbol for feed in plan.feeds for symbol in feed.symbols]
    words = list(plan.words)
    favourite = random.choice(symbols)
    for _ in range(random.choice((1, 2, 3, 5))):
        symbol = favourite if random.random() < 0.7 else random.choice(symbols)
        if random.random() < 0.75:
            word = Word(_pause(random), "reshard", symbol, {"shards": random.randint(1, MAX_SHARDS)})
        else:
            wanted = random.choice((symbol, ""))
            word = Word(_pause(random), "rebuild", wanted, {"repair": int(random.random() < 0.6)})
        words.insert(random.randrange(len(words) + 1), word)
    faults = list(plan.faults)
    last_turn = max([700, *(fault.turn for fault in faults)])
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        faults.append(
            Fault(random.randrange(last_turn), random.choice(UPKEEP_FAULTS), Role.UPKEEP, random.randrange(256))
        )
    instances = {**plan.instances, Role.UPKEEP: random.choice((1, 1, 2))}
    return replace(plan, words=words, faults=sorted(faults, key=lambda fault: fault.turn), instances=instances)


def _pause(random: Random) -> int:
    """Milliseconds before the word: some follow the one before at once, most let it come to something."""
    return random.choice((0, 20, 100, 400, 1_500, 1_500))
