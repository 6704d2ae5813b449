"""Which plan a seed has."""

from __future__ import annotations

from typing import Final

from simulation.crowded_plan import make_crowded_plan
from simulation.moving_plan import with_moves
from simulation.plan import Plan, make_plan

MOVING_EVERY: Final = 5  # of so many seeds one has moves and rebuilds
CROWDED_EVERY: Final = 20  # of so many seeds one has moves that everything meets
FIRST_CROWDED: Final = 10


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    if seed % CROWDED_EVERY == FIRST_CROWDED:
        return make_crowded_plan(seed)
    plan = make_plan(seed)
    return with_moves(plan) if seed % MOVING_EVERY == 0 and not plan.live else plan
