"""`./alerts reshard`: move a symbol's rules into other shards; docs/architecture.md, "Reshard"."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Final

import typer

from contracts.symbols import SymbolError, canonical_symbol
from finalizer.shard_ports import Phase
from sql.connection import Pool
from sql.reference_store import DeclarationError, ReferenceStore
from sql.reshard_store import PostgresReshardStore, ReshardProgress
from stack.errors import StackError
from stack.operator_database import Dsn, Schema, operator_pool
from stack.progress import say

POLL_S: Final = 0.2
TOLD: Final = {
    Phase.OPENING: "the new shards begin to get the symbol's prices",
    Phase.DRAINING: "new alerts go to the new shards; those on their way into the old ones become active",
    Phase.MARKING: "the new shards come to the place from which on rules are given to them",
    Phase.COPYING: "rules are given to the new shards as well",
    Phase.ENDING: "the old shards come to their end",
    Phase.SWITCHING: "alerts change shards",
    Phase.DONE: "done",
}


def command(
    symbol: Annotated[str, typer.Argument(help="Of a declared instrument.")],
    *,
    shards: Annotated[int, typer.Option(min=1, max=1_024, help="Shards of its own; 1: its bucket's.")],
    wait: Annotated[bool, typer.Option(help="Wait until it is done; it goes on either way.")] = True,
    timeout_seconds: Annotated[int, typer.Option("--timeout", min=1, help="How long to wait.")] = 3_600,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Nothing is lost, doubled or late by it, and alerts may be made meanwhile; one JSON line on stdout."""
    try:
        canonical = canonical_symbol(symbol)
        with operator_pool(dsn, schema) as pool:
            began = ReferenceStore(pool).set_routing(canonical, shards) is not None
            progress = (
                _await(pool, canonical, timeout_seconds) if wait else PostgresReshardStore(pool).newest(canonical)
            )
    except (DeclarationError, SymbolError) as error:
        raise StackError(str(error)) from None
    said = {"symbol": canonical, "shards": shards, "began": began}
    if progress is not None:
        said |= {"phase": progress.reshard.phase.value, "copied": progress.copied, "switched": progress.switched}
    sys.stdout.write(json.dumps(said) + "\n")


def _await(pool: Pool, symbol: str, timeout_seconds: int) -> ReshardProgress | None:
    """The symbol's newest reshard, once it is done; None: it was never moved."""
    store, deadline, told = PostgresReshardStore(pool), time.monotonic() + timeout_seconds, ""
    while True:
        progress = store.newest(symbol)
        if progress is None:
            return None
        phase = progress.reshard.phase
        now = f"{phase.lower()}: {TOLD[phase]} ({progress.copied} copied, {progress.switched} switched)"
        if now != told:
            say(now)
            told = now
        if phase is Phase.DONE:
            return progress
        if time.monotonic() > deadline:
            raise StackError(
                f"the reshard of {symbol} is {phase.lower()} after {timeout_seconds} s and goes on",
                remedy="`waiting` in shard-upkeep's health file says what for; the same command again waits on",
            )
        time.sleep(POLL_S)
