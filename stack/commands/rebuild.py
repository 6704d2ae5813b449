"""`./alerts rebuild`: docs/architecture.md, "Rebuild and verify"."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from stack.operator_database import Dsn, Schema
from stack.rebuilding import read_out


def command(
    *,
    symbol: Annotated[str | None, typer.Option(help="Its rules alone; default: every rule.")] = None,
    feed: Annotated[str | None, typer.Option(help="The shards of one feed; default: of all.")] = None,
    state_lost: Annotated[
        bool, typer.Option("--state-lost", help="The matchers know nothing, and their log is cut: docs/flink.md.")
    ] = False,
    timeout_seconds: Annotated[int, typer.Option("--timeout", min=1, help="How long to wait.")] = 3_600,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Rules that the index lacks are installed, rules that the table lacks leave it; one JSON line on stdout."""
    told = read_out(dsn, schema, feed, symbol, repair=True, state_lost=state_lost, timeout_seconds=timeout_seconds)
    sys.stdout.write(json.dumps(told) + "\n")
