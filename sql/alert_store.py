"""An owner's alerts in Postgres (api/ports.py has the contract): every query is scoped to its owner.

A store lives inside one transaction that its caller opens and commits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from psycopg import Connection, errors

from api.ports import (
    EXPIRING,
    AlertFilter,
    AlertRecord,
    FeedFrontier,
    IdempotencyKeyTakenError,
    InstrumentRoute,
    NewAlert,
)
from contracts.vocabulary import Status
from sql.connection import Row
from sql.named import load_queries
from sql.routes import lock_routes

QUERIES: Final = load_queries("alerts")
LIVE: Final = frozenset({Status.PENDING, Status.ACTIVE, Status.PAUSED})  # as in the partial index
MAX_DELIVERIES: Final = 100


class PostgresAlertStore:
    """AlertStore. Rows come as dicts (the connection's row factory is dict_row)."""

    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection

    def find_instrument(self, spellings: list[str]) -> InstrumentRoute | None:
        row = QUERIES.find_instrument(self._connection, spellings=spellings)
        return InstrumentRoute(**row) if row else None

    def resolve_symbol(self, spellings: list[str]) -> str | None:
        row = QUERIES.resolve_symbol(self._connection, spellings=spellings)
        return row["symbol"] if row else None

    def feed_frontiers(self) -> list[FeedFrontier]:
        return [FeedFrontier(**row) for row in QUERIES.read_feed_clocks(self._connection)]

    def insert(self, alert: NewAlert) -> AlertRecord | None:
        try:
            row = QUERIES.insert_alert(
                self._connection, **{name: getattr(alert, name) for name in NewAlert.__dataclass_fields__}
            )
        except errors.UniqueViolation as error:
            if error.diag.table_name == "idempotency_keys":
                raise IdempotencyKeyTakenError from None
            raise
        return _record(row) if row else None

    def find_idempotent(self, owner_id: int, idempotency_key: str) -> tuple[bytes, int] | None:
        row = QUERIES.find_idempotent_request(self._connection, owner_id=owner_id, idempotency_key=idempotency_key)
        return (bytes(row["request_hash"]), row["alert_id"]) if row else None

    def find(self, owner_id: int, alert_id: int, clocks_ms: Mapping[str, int]) -> AlertRecord | None:
        row = QUERIES.find_alert(self._connection, owner_id=owner_id, alert_id=alert_id, **_clocks(clocks_ms))
        return _record(row) if row else None

    def page(
        self, owner_id: int, shown: AlertFilter, before_alert_id: int, limit: int, clocks_ms: Mapping[str, int]
    ) -> list[AlertRecord]:
        live = shown.status == EXPIRING or shown.status in LIVE
        query = QUERIES.list_live_alerts if live else QUERIES.list_alerts
        rows = query(
            self._connection,
            owner_id=owner_id,
            before_alert_id=before_alert_id,
            status=shown.status,
            symbol=shown.symbol,
            limit=limit,
            **_clocks(clocks_ms),
        )
        return [_record(row) for row in rows]

    def statuses(self, alert_ids: Collection[int]) -> dict[int, Status]:
        rows = QUERIES.read_statuses(self._connection, alert_ids=list(alert_ids))
        return {row["alert_id"]: Status(row["status"]) for row in rows}

    def cancel(self, owner_id: int, alert_id: int, from_statuses: Collection[Status]) -> bool:
        return self._moved(QUERIES.cancel_alert, owner_id, alert_id, from_statuses)

    def pause(self, owner_id: int, alert_id: int, from_statuses: Collection[Status]) -> bool:
        return self._moved(QUERIES.pause_alert, owner_id, alert_id, from_statuses)

    def resume(self, owner_id: int, alert_id: int, from_statuses: Collection[Status]) -> bool:
        row = QUERIES.lock_alert(self._connection, owner_id=owner_id, alert_id=alert_id)
        if row is None:
            return False
        shard = lock_routes(self._connection, [row["symbol"]])[row["symbol"]].shard_of(alert_id)
        return self._moved(QUERIES.resume_alert, owner_id, alert_id, from_statuses, shard=shard)

    def _moved(
        self, query: Any, owner_id: int, alert_id: int, from_statuses: Collection[Status], **fields: Any
    ) -> bool:
        statuses = [str(status) for status in from_statuses]
        moved = query(self._connection, owner_id=owner_id, alert_id=alert_id, from_statuses=statuses, **fields)
        return bool(moved)

    def deliveries(self, owner_id: int, alert_id: int) -> list[Row]:
        return list(
            QUERIES.list_deliveries(self._connection, owner_id=owner_id, alert_id=alert_id, limit=MAX_DELIVERIES)
        )


def _clocks(clocks_ms: Mapping[str, int]) -> dict[str, list[Any]]:
    return {"feeds": list(clocks_ms), "clocks_ms": list(clocks_ms.values())}


def _record(row: Row) -> AlertRecord:
    fields = {name: row[name] for name in AlertRecord.__dataclass_fields__ if name in row}
    return AlertRecord(**{**fields, "status": Status(row["status"]), "window": row["rate_window"]})
