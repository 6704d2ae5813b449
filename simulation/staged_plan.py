"""Plans for mutants that chance finds too seldom: the matcher falls behind in old shards while their rules are
copied, or readers fall far behind, and consumers and matchers die."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from simulation.crowded_plan import make_crowded_plan
from simulation.plan import Fault, FaultKind, Plan, Role

TURNS: Final = 3_000
STRUCK: Final = (
    (FaultKind.KILL, Role.CONSUMER),
    (FaultKind.DATABASE_AWAY, Role.CONSUMER),
    (FaultKind.STATE_LOST, Role.MATCHER),
)


def make_staged_plan(seed: int) -> Plan:
    """The plan of a seed."""
    random = Random(f"stage/{seed}")  # noqa: S311  (a simulation's seed, no secret)
    faults = [
        Fault(random.randrange(TURNS), *random.choice(STRUCK), random.randrange(256))
        for _ in range(random.choice((0, 2, 4)))
    ]
    plan = make_crowded_plan(seed)
    faults = sorted([*plan.faults, *faults], key=lambda fault: fault.turn)
    if random.random() < 0.5:
        return replace(plan, faults=faults, lags_one_poll_in=10, max_lag_polls=60)
    return replace(plan, faults=faults, lags_one_poll_in=0, behind_moves=True)
