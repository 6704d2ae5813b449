"""Which plan a seed has."""

from __future__ import annotations

from typing import Final

from simulation.moving_plan import make_moving_plan
from simulation.plan import Plan, make_plan

MOVING_EVERY: Final = 5  # of so many seeds one has moves and rebuilds


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    if seed % MOVING_EVERY == 0 and not make_plan(seed).live:
        return make_moving_plan(seed)
    return make_plan(seed)
