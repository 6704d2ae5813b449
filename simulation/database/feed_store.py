"""The gateway's database in memory: sql/queries/feeds.sql and sql/feed_store.py, query by query."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from feeds.ports import FeedRow, LeaseLostError, PendingControl, StoreAwayError, TakenFeed
from simulation.database.engine import MemoryDatabase
from simulation.database.errors import DatabaseAwayError
from simulation.database.table import Row
from simulation.database.transaction import NO_KEY_UPDATE, Transaction


class MemoryFeedStore:
    """FeedStore."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    def list_feeds(self) -> Sequence[FeedRow]:
        with self._transaction() as tx:
            tx.statement("list_feeds")
            rows = sorted(tx.rows(self._database.feeds), key=lambda row: str(row["feed"]))
            return [_feed_row(row) for row in rows]

    def take_lease(self, feed: str, first_checkpoint: str) -> TakenFeed | None:
        with self._transaction() as tx:
            row = take_lease(self._database, tx, feed, first_checkpoint)
        return None if row is None else TakenFeed(_feed_row(row), _text(row["checkpoint"]))

    def save_checkpoints(self, leases: Mapping[str, int], checkpoints: Mapping[str, str]) -> None:
        with self._transaction() as tx:
            save_checkpoints(self._database, tx, leases, checkpoints)

    def list_instruments(self, feed: str) -> Mapping[str, int]:
        with self._transaction() as tx:
            tx.statement("list_instruments")
            found = {r["symbol"]: r["decimals"] for r in tx.rows(self._database.instruments) if r["feed"] == feed}
            return {symbol: found[symbol] for symbol in sorted(found)}

    def feeds_with_controls(self, feeds: Sequence[str]) -> Sequence[str]:
        with self._transaction() as tx:
            tx.statement("find_feeds_with_controls")
            return [feed for feed in sorted(set(feeds)) if _unpublished(self._database, tx, feed)]

    def number_controls(self, feed: str, lease: int, limit: int) -> Sequence[PendingControl]:
        with self._leased(feed, lease) as tx:
            number_controls(self._database, tx, feed, limit)
            return read_numbered_controls(self._database, tx, feed, limit)

    def mark_published(self, feed: str, lease: int, control_ids: Sequence[int]) -> None:
        with self._leased(feed, lease) as tx:
            mark_controls_published(self._database, tx, feed, control_ids)

    def close(self) -> None: ...

    @contextmanager
    def _leased(self, feed: str, lease: int) -> Iterator[Transaction]:
        """A transaction in which nobody else can take the feed."""
        with self._transaction() as tx:
            if lock_lease(self._database, tx, feed) != lease:
                raise LeaseLostError(feed, lease)
            yield tx

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        try:
            with self._database.transaction() as tx:
                yield tx
        except DatabaseAwayError as error:
            raise StoreAwayError(f"database: {error}") from error


def _feed_row(row: Row) -> FeedRow:
    settings = dict(row["settings"])
    return FeedRow(row["feed"], row["buckets"], row["clock_mode"], settings, row["lease"], row["signs_of_life"])


def take_lease(database: MemoryDatabase, tx: Transaction, feed: str, first_checkpoint: str) -> Row | None:
    tx.statement("take_lease")
    record = database.feeds.primary.records.get(feed)
    row = None if record is None else tx.take(record, lambda row: True)
    if record is None or row is None:
        return None
    checkpoint = json.loads(first_checkpoint) if row["checkpoint"] is None else row["checkpoint"]
    changes = {"lease": row["lease"] + 1, "signs_of_life": row["signs_of_life"] + 1, "checkpoint": checkpoint}
    return tx.update(record, changes)


def save_checkpoints(
    database: MemoryDatabase, tx: Transaction, leases: Mapping[str, int], checkpoints: Mapping[str, str]
) -> None:
    tx.statement("save_checkpoints")
    for feed in sorted(checkpoints):
        record = database.feeds.primary.records.get(feed)
        lease = leases[feed]
        row = None if record is None else tx.take(record, lambda row, lease=lease: row["lease"] == lease)  # type: ignore[misc]
        if record is not None and row is not None:
            changes = {"checkpoint": json.loads(checkpoints[feed]), "signs_of_life": row["signs_of_life"] + 1}
            tx.update(record, changes)


def _unpublished(database: MemoryDatabase, tx: Transaction, feed: str) -> list[Row]:
    rows = (tx.see(record) for record in database.feed_controls.indexes["unpublished"].find(feed))
    return [row for row in rows if row is not None and row["published_at"] is None]


def lock_lease(database: MemoryDatabase, tx: Transaction, feed: str) -> int | None:
    tx.statement("lock_lease")
    record = database.feeds.primary.records.get(feed)
    if record is None or tx.see(record) is None:
        return None
    lease: int = tx.lock(record, NO_KEY_UPDATE)["lease"]
    return lease


def number_controls(database: MemoryDatabase, tx: Transaction, feed: str, limit: int) -> None:
    """Under lock_lease: the numbers of rows that have none, by control_id."""
    tx.statement("number_controls")
    waiting = [row["control_id"] for row in _unpublished(database, tx, feed) if row["control_number"] is None]
    if not waiting:
        return
    feed_row = tx.find(database.feeds, feed)
    assert feed_row is not None  # it is locked
    last_control = feed_row["last_control"]
    for place, control_id in enumerate(sorted(waiting)[:limit], 1):
        record = database.feed_controls.primary.records[control_id]
        tx.lock(record, NO_KEY_UPDATE)
        tx.update(record, {"control_number": last_control + place})
    record = database.feeds.primary.records[feed]
    tx.lock(record, NO_KEY_UPDATE)
    tx.update(record, {"last_control": last_control + min(limit, len(waiting))})


def read_numbered_controls(database: MemoryDatabase, tx: Transaction, feed: str, limit: int) -> list[PendingControl]:
    tx.statement("read_numbered_controls")
    rows = [row for row in _unpublished(database, tx, feed) if row["control_number"] is not None]
    rows.sort(key=lambda row: int(row["control_number"]))
    return [
        PendingControl(row["control_id"], row["control_number"], row["bucket"], row["payload"]) for row in rows[:limit]
    ]


def mark_controls_published(database: MemoryDatabase, tx: Transaction, feed: str, control_ids: Sequence[int]) -> None:
    tx.statement("mark_controls_published")
    for control_id in control_ids:
        record = database.feed_controls.primary.records.get(control_id)
        if (
            record is not None
            and tx.take(record, lambda row: row["feed"] == feed and row["published_at"] is None) is not None
        ):
            tx.update(record, {"published_at": tx.now_ms})


def _text(value: Any) -> str:
    """As the server prints jsonb: keys by length, then by bytes."""
    return json.dumps(_ordered(value), ensure_ascii=False)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: _ordered(value[key]) for key in keys}
    return [_ordered(item) for item in value] if isinstance(value, list) else value
