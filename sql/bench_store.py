"""What benchmarks write in bulk and read back. Every method is the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import Connection

from sql.connection import Row
from sql.named import load_queries

QUERIES: Final = load_queries("bench")
CHUNK_IDS: Final = 50_000


@dataclass(frozen=True, slots=True)
class BulkInstrument:
    """`payload` is the serialized alerts.v1.Control that tells the bucket of it."""

    symbol: str
    decimals: int
    bucket: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class BulkAlert:
    """`threshold` is bps or the scaled target; `window` is None for a price."""

    symbol: str
    shard: str
    window: str | None
    direction: str
    threshold: int
    decimals: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """One alert at the end. `committed_ms`: when the transaction that triggered it committed (epoch, wall clock)."""

    alert_id: int
    symbol: str
    rate_window: str | None
    direction: str
    threshold: int
    status: str
    event_time_ms: int | None
    committed_ms: float | None


@dataclass(frozen=True, slots=True)
class Ends:
    """What the tables say after a burst. All zero when nothing was lost, doubled or made up.

    `lost`: alerts of the burst without a fact and its outbox row. `doubled`: outbox rows and remove commands beyond one
    a fact. `surplus`: facts that nobody claimed. `places_off`: quota places held too many (or, below 0, too few).
    """

    lost: int
    doubled: int
    surplus: int
    places_off: int


@dataclass(frozen=True, slots=True)
class RacedAlert:
    """An alert with the number of its outbox rows and remove commands."""

    alert_id: int
    owner_id: int
    shard: str
    kind: str
    status: str
    outbox: int
    removes: int


class BenchStore:
    """Needs `track_commit_timestamp = on` for outcomes."""

    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection

    def insert_instruments(self, feed: str, instruments: Iterable[BulkInstrument]) -> None:
        QUERIES.stage_instruments(self._connection)
        with (
            self._connection.cursor() as cursor,
            cursor.copy("COPY staged_instruments FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.set_types(["int4", "text", "int4", "int4", "bytea"])
            for place, new in enumerate(instruments):
                copy.write_row((place, new.symbol, new.decimals, new.bucket, new.payload))
        QUERIES.insert_staged_instruments(self._connection, feed=feed)

    def insert_alerts(self, owner_id: int, alerts: Iterable[BulkAlert], created_at_ms: int, expires_at_ms: int) -> None:
        """PENDING, each with its create command, as a create through the API writes them."""
        QUERIES.stage_alerts(self._connection)
        with self._connection.cursor() as cursor, cursor.copy("COPY staged_alerts FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["text", "text", "text", "text", "text", "int8", "int4"])
            for new in alerts:
                kind = "price" if new.window is None else "change"
                copy.write_row((new.symbol, new.shard, kind, new.window, new.direction, new.threshold, new.decimals))
        QUERIES.insert_staged_alerts(
            self._connection, owner_id=owner_id, created_at_ms=created_at_ms, expires_at_ms=expires_at_ms
        )

    def count_by_status(self) -> dict[str, int]:
        return {row["status"]: int(row["alerts"]) for row in QUERIES.count_by_status(self._connection)}

    def outcomes(self) -> list[Outcome]:
        return [Outcome(**row) for row in QUERIES.read_outcomes(self._connection)]

    def count_outbox(self) -> tuple[int, int]:
        """(rows of `triggers`, different alerts among them)."""
        row = QUERIES.count_outbox(self._connection)
        return int(row["triggers"]), int(row["alerts"])

    def insert_owners(self, owners: int) -> None:
        QUERIES.insert_owners(self._connection, owners=owners)

    def insert_active_alerts(
        self, numbers: range, owners: int, shards: Mapping[str, str], *, created_at_ms: int, expires_at_ms: int
    ) -> None:
        """ACTIVE, half changes and half prices; their numbers spread them over all owners and symbols.

        shards: symbol -> shard.
        """
        made = QUERIES.insert_active_alerts(
            self._connection, first=numbers.start, alerts=len(numbers), owners=owners, symbols=list(shards),
            shards=list(shards.values()), created_at_ms=created_at_ms, expires_at_ms=expires_at_ms,
        )  # fmt: skip
        if made != len(numbers):
            raise RuntimeError(f"{made} of {len(numbers)} alerts were inserted: owners or symbols are missing")

    def places(self, alert_ids: Sequence[int]) -> list[tuple[int, str, str]]:
        """(alert_id, shard, kind), in order of alert_id."""
        rows = QUERIES.read_places(self._connection, alert_ids=list(alert_ids))
        return [(row["alert_id"], row["shard"], row["kind"]) for row in rows]

    def count_finalized(self) -> int:
        return int(QUERIES.count_finalized(self._connection))

    def has_unpublished(self) -> bool:
        return bool(QUERIES.has_unpublished(self._connection))

    def ends(self, burst: Sequence[int]) -> Ends:
        """burst: ids of the alerts that had to fire, all others must not."""
        told = fired = 0
        for first in range(0, len(burst), CHUNK_IDS):
            row = QUERIES.count_fired(self._connection, alert_ids=list(burst[first : first + CHUNK_IDS]))
            told, fired = told + row["told"], fired + row["triggered"]
        row = QUERIES.count_ends(self._connection)
        triggered = int(row["triggered"])
        doubled = max(0, row["outbox"] - triggered) + max(0, row["removes"] - triggered)
        return Ends(len(burst) - told, doubled, triggered - fired, int(row["places_off"]))

    def setting(self, name: str) -> str:
        """A server setting as this session sees it."""
        return str(QUERIES.read_setting(self._connection, name=name))

    def last_ids(self) -> tuple[int, int]:
        """The highest (alert_id, command_id), 0 where there is none."""
        return int(QUERIES.last_alert_id(self._connection)), int(QUERIES.last_command_id(self._connection))

    def raced(self, after_alert_id: int, after_command_id: int) -> list[RacedAlert]:
        """Alerts and their commands that came behind these, by alert_id."""
        rows = QUERIES.read_raced(self._connection, first=after_alert_id + 1, after_command_id=after_command_id)
        return [RacedAlert(**row) for row in rows]

    def places_held(self) -> int:
        """Quota places of all owners together."""
        return int(QUERIES.places_held(self._connection))
