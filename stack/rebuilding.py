"""Asking for rebuilds and watching them: what `./alerts rebuild` and `./alerts verify` share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from contracts.symbols import SymbolError, canonical_symbol
from finalizer.shard_ports import RebuildPhase
from sql.connection import Pool
from sql.rebuild_store import PostgresRebuildStore, RebuildProgress
from sql.reference_store import DeclarationError
from stack.errors import StackError
from stack.operator_database import operator_pool
from stack.progress import console, say

POLL_S: Final = 0.2
COUNTS: Final = ("asserted", "known", "missing", "other_version", "surplus")


def read_out(
    dsn: str | None, schema: str | None, feed: str | None, symbol: str | None,
    *, repair: bool, timeout_seconds: int, state_lost: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The table read out into the shards' logs; totals and the first differences once every matcher has answered."""
    try:
        canonical = None if symbol is None else canonical_symbol(symbol)
        with operator_pool(dsn, schema) as pool:
            ids = PostgresRebuildStore(pool).request(feed, canonical, repair=repair, state_lost=state_lost)
            found = _await(pool, ids, canonical, timeout_seconds)
    except (DeclarationError, SymbolError) as error:
        raise StackError(str(error)) from None
    differences = [{"shard": rebuild.shard, **difference} for rebuild in found for difference in rebuild.differences]
    return {
        "shards": len(found),
        **{name: sum(getattr(rebuild, name) for rebuild in found) for name in COUNTS},
        "differences": differences,
    }


def _await(pool: Pool, ids: Sequence[int], symbol: str | None, timeout_seconds: int) -> list[RebuildProgress]:
    store, deadline = PostgresRebuildStore(pool), time.monotonic() + timeout_seconds
    expected = store.live_alerts([rebuild.shard for rebuild in store.progress(ids)], symbol)
    say(f"{len(ids)} shards, {expected} live rules")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        bar = bars.add_task("rules read out", total=expected)
        while True:
            found = store.progress(ids)
            bars.update(bar, completed=min(expected, sum(rebuild.asserted for rebuild in found)))
            left = [rebuild for rebuild in found if rebuild.phase is not RebuildPhase.DONE]
            if not left:
                bars.update(bar, completed=expected)
                return found
            if time.monotonic() > deadline:
                raise StackError(
                    f"{len(left)} of {len(ids)} shards are not through after {timeout_seconds} s, and they go on",
                    where=f"{left[0].shard} is {left[0].phase.lower()}",
                    remedy="rule-relay, threshold-matcher, finalizer and shard-upkeep must be well: `./alerts status`",
                )
            time.sleep(POLL_S)
