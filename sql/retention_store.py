"""What retention drops, in Postgres (finalizer/retention.py has the contract)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sql.connection import Pool, transaction
from sql.named import load_queries

QUERIES: Final = load_queries("retention")


class PostgresRetentionStore:
    """RetentionStore. The pool is the caller's."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def drop_alerts(
        self, after: int, rows: int, before_ms: int, keep: Callable[[Sequence[Any]], None]
    ) -> tuple[int | None, int]:
        with transaction(self._pool) as connection:
            until: int | None = QUERIES.page_end(connection, after=after, rows=rows)
            if until is None:
                return None, 0
            held = list(QUERIES.hold_ended(connection, after=after, until=until, before_ms=before_ms))
            if held:
                keep([row["row"] for row in held])
                alert_ids = [row["alert_id"] for row in held]
                trigger_ids = [row["trigger_id"] for row in held if row["trigger_id"] is not None]
                QUERIES.drop_deliveries(connection, trigger_ids=trigger_ids)
                QUERIES.drop_triggers(connection, trigger_ids=trigger_ids)
                QUERIES.drop_keys(connection, alert_ids=alert_ids)
                QUERIES.drop_parked(connection, alert_ids=alert_ids)
                QUERIES.drop_alerts(connection, alert_ids=alert_ids)
        return until, len(held)

    def drop_commands(self, after: int, rows: int, before_ms: int) -> tuple[int | None, int]:
        with transaction(self._pool) as connection:
            row = QUERIES.drop_commands(connection, after=after, rows=rows, before_ms=before_ms)
        return row["until"], row["dropped"]
