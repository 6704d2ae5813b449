"""A small world in Postgres: an owner, a symbol, alerts; and what became of them, read by plain SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contracts.frames_pb2 import (
    Activation,
    Candidate,
    CandidateEntry,
    CandidateFrame,
    Counts,
    Direction,
    Frontier,
    Marker,
)
from contracts.keys import bucket_shard
from sql.connection import Pool
from sql.reference_store import ReferenceStore

SHARD = bucket_shard("stocks", 0)
START_MS = 1_000_000
END_MS = 2_000_000
TOPIC, DEAD_LETTERS, SHARD_LOG, TRIGGERS = "candidates.v1", "dead-letters.v1", "shard-log.v1", "triggers.v1"


class World:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        store = ReferenceStore(pool)
        store.create_feed("stocks", 1, "replay")
        store.add_instrument("AAA", "stocks", 2)
        self.owner_id = self.value("INSERT INTO owners (name) VALUES ('ann') RETURNING owner_id")

    def rows(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        with self.pool.connection() as connection:
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def value(self, statement: str, *parameters: Any) -> Any:
        return next(iter(self.rows(statement, *parameters)[0].values()))

    def add_alerts(
        self, count: int, *, kind: str = "change", shard: str = SHARD, expires_at_ms: int = END_MS
    ) -> list[int]:
        """PENDING, each with its create command and its place in the owner's quota."""
        window, direction, threshold = ("1h", "UP", 500) if kind == "change" else (None, "ABOVE", 10_500)
        rows = self.rows(
            """WITH made AS (
                   INSERT INTO alerts (owner_id, symbol, shard, kind, rate_window, direction, threshold, decimals,
                                       note, created_at_ms, expires_at_ms, status)
                   SELECT %s, 'AAA', %s, %s, %s, %s, %s, 2, 'é 📈', %s, %s, 'PENDING' FROM generate_series(1, %s)
                   RETURNING *),
               commanded AS (INSERT INTO rule_commands (shard, alert_id, version, action)
                             SELECT shard, alert_id, version, 'create' FROM made),
               counted AS (UPDATE owners SET live_alerts = live_alerts + %s WHERE owner_id = %s)
               SELECT alert_id FROM made ORDER BY alert_id""",
            self.owner_id, shard, kind, window, direction, threshold, START_MS, expires_at_ms, count, count,
            self.owner_id,
        )  # fmt: skip
        return [row["alert_id"] for row in rows]

    def add_channel(self, kind: str = "email", address: str = "ann@example.org", secret: bytes | None = None) -> int:
        statement = (
            "INSERT INTO channels (owner_id, kind, address, secret) VALUES (%s, %s, %s, %s) RETURNING channel_id"
        )
        found: int = self.value(statement, self.owner_id, kind, address, secret)
        return found

    def alert(self, alert_id: int) -> dict[str, Any]:
        return self.rows("SELECT * FROM alerts WHERE alert_id = %s", alert_id)[0]

    def statuses(self) -> dict[str, int]:
        rows = self.rows("SELECT status, count(*) AS alerts FROM alerts GROUP BY status")
        return {row["status"]: row["alerts"] for row in rows}

    def commands(self) -> list[tuple[int, int, str]]:
        rows = self.rows("SELECT alert_id, version, action FROM rule_commands ORDER BY command_id")
        return [(row["alert_id"], row["version"], row["action"]) for row in rows]

    def cancel(self, alert_id: int) -> int:
        """The API's own cancel; how many alerts moved."""
        from contracts.vocabulary import Status
        from sql.alert_store import PostgresAlertStore

        with self.pool.connection() as connection:
            live = [Status.PENDING, Status.ACTIVE, Status.PAUSED]
            return int(PostgresAlertStore(connection).cancel(self.owner_id, alert_id, live))

    def check_invariants(self) -> None:
        """TRIGGERED <=> exactly one outbox row; the quota counts live alerts; each end has its remove command."""
        assert (
            self.rows(
                """SELECT alert_id, a.status, t.trigger_id FROM alerts a FULL JOIN triggers t USING (alert_id)
               WHERE (a.status = 'TRIGGERED') <> (t.trigger_id IS NOT NULL)"""
            )
            == []
        )
        live = self.value("SELECT count(*) FROM alerts WHERE status IN ('PENDING', 'ACTIVE', 'PAUSED')")
        assert self.value("SELECT live_alerts FROM owners WHERE owner_id = %s", self.owner_id) == live
        assert (
            self.rows(
                """SELECT alert_id, count(c.command_id) FROM alerts a
               LEFT JOIN rule_commands c USING (alert_id)
               WHERE a.status IN ('TRIGGERED', 'CANCELLED', 'EXPIRED')
               GROUP BY alert_id HAVING count(*) FILTER (WHERE c.action = 'remove') <> 1"""
            )
            == []
        )


def activation(alert_id: int, position: int, version: int = 1, active_from_ms: int = START_MS) -> CandidateEntry:
    return CandidateEntry(
        position=position,
        activation=Activation(alert_id=alert_id, version=version, active_from_event_time_ms=active_from_ms),
    )


def candidate(
    alert_id: int, position: int, version: int = 1, at_ms: int = START_MS + 5, **fields: Any
) -> CandidateEntry:
    given = {
        "sequence": 7, "session": 3, "price_scaled": 10_500, "fired": Direction.UP, "window": 1,
        "reference_time_ms": START_MS - 3_600_000, "reference_price_scaled": 10_000, "previous_bps": 499,
        "current_bps": 500, **fields,
    }  # fmt: skip
    return CandidateEntry(
        position=position, candidate=Candidate(alert_id=alert_id, version=version, event_time_ms=at_ms, **given)
    )


def frontier(at_ms: int, position: int, counts: Counts | None = None) -> CandidateEntry:
    found = Frontier(frontier_ms=at_ms, metrics_epoch=4, metrics_number=position, counts=counts)
    return CandidateEntry(position=position, frontier=found)


def marker(marker_id: int, position: int) -> CandidateEntry:
    return CandidateEntry(position=position, marker=Marker(marker_id=marker_id))


def frame(entries: Sequence[CandidateEntry], first: int = 1, epoch: int = 1, shard: str = SHARD) -> CandidateFrame:
    return CandidateFrame(shard=shard, epoch=epoch, first_number=first, entries=entries)
