"""Which plan a seed has."""

from __future__ import annotations

from typing import Final

from simulation.moving_plan import with_moves
from simulation.plan import Plan, make_plan

MOVING_EVERY: Final = 5  # of so many seeds one has moves and rebuilds


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    plan = make_plan(seed)
    return with_moves(plan) if seed % MOVING_EVERY == 0 and not plan.live else plan
