"""`./alerts verify`: docs/architecture.md, "Rebuild and verify"."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from stack.operator_database import Dsn, Schema
from stack.progress import say
from stack.rebuilding import read_out

DIFFER = 1


def command(
    *,
    symbol: Annotated[str | None, typer.Option(help="Its rules alone; default: every rule.")] = None,
    feed: Annotated[str | None, typer.Option(help="The shards of one feed; default: of all.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compare; exit 1 when something differs.")] = False,
    timeout_seconds: Annotated[int, typer.Option("--timeout", min=1, help="How long to wait.")] = 3_600,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Differences by name on stderr, all in one JSON line on stdout; mended unless --dry-run."""
    told = read_out(dsn, schema, feed, symbol, repair=not dry_run, timeout_seconds=timeout_seconds)
    for difference in told["differences"]:
        found = f", the index has {difference['found_version']}" if difference["found_version"] else ""
        say(
            f"{difference['kind'].lower().replace('_', ' ')}: alert {difference['alert_id']} version "
            f"{difference['version']}{found} (shard {difference['shard']})"
        )
    differ = told["missing"] + told["other_version"] + told["surplus"] > 0
    sys.stdout.write(json.dumps({**told, "mended": differ and not dry_run}) + "\n")
    if differ and dry_run:
        raise typer.Exit(DIFFER)
