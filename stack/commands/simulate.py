"""`./alerts simulate`: seeded worlds of the whole product in one process, under faults, against the oracle."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Annotated

import orjson
import typer

from stack.progress import console


def command(
    seeds: Annotated[int, typer.Option(min=1, help="How many worlds.")] = 2_000,
    first: Annotated[int, typer.Option("--from", min=0, help="The first seed.")] = 1,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="Also break the product on purpose: each fault must be found.")
    ] = False,
    processes: Annotated[int | None, typer.Option(min=1, help="Default: one a core.")] = None,
) -> None:
    """Play worlds; exit 1 when one broke a promise, when a mutant lived, or when a fault was never reached."""
    from simulation.campaign import Campaign  # noqa: PLC0415

    campaign = Campaign(range(first, first + seeds), processes, console)
    reached: Counter[str] = campaign.play()
    survived = campaign.hunt() if mutants else None
    missing = campaign.missing(reached)
    for name in missing:
        console.print(f"never reached: {name}", style="red")
    report = {
        "simulation": "failed" if campaign.failed or survived or missing else "passed",
        "seeds": seeds,
        "failed": campaign.failed,
        "mutants": campaign.hunted,
        "survived": 0 if survived is None else len(survived),
        "seconds": round(campaign.seconds, 1),
        "turns": campaign.turns,
        "reached": dict(sorted(reached.items())),
    }
    sys.stdout.write(orjson.dumps(report).decode() + "\n")
    if report["simulation"] == "failed":
        raise typer.Exit(1)
