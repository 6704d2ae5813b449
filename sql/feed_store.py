"""The gateway's database (feeds/ports.py has the contract)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg import Connection

from feeds.ports import FeedRow, LeaseLostError, PendingControl, StoreAwayError, TakenFeed
from sql.connection import Pool, Row, open_pool, transaction
from sql.named import load_queries

QUERIES: Final = load_queries("feeds")


def open_feed_store(dsn: str, schema: str) -> PostgresFeedStore:
    """Raises StoreAwayError when the database does not answer."""
    try:
        return PostgresFeedStore(open_pool(dsn, schema, "feeds", max_size=2))
    except psycopg.OperationalError as error:
        raise StoreAwayError(f"database: {error}") from error


class PostgresFeedStore:
    """FeedStore. Owns its pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def list_feeds(self) -> Sequence[FeedRow]:
        with self._transaction() as connection:
            return [FeedRow(**row) for row in QUERIES.list_feeds(connection)]

    def take_lease(self, feed: str, first_checkpoint: str) -> TakenFeed | None:
        with self._transaction() as connection:
            row = QUERIES.take_lease(connection, feed=feed, first_checkpoint=first_checkpoint)
        if row is None:
            return None
        checkpoint = row.pop("checkpoint")
        return TakenFeed(FeedRow(**row), checkpoint)

    def save_checkpoints(self, leases: Mapping[str, int], checkpoints: Mapping[str, str]) -> None:
        feeds = sorted(checkpoints)
        with self._transaction() as connection:
            QUERIES.save_checkpoints(
                connection,
                feeds=feeds,
                leases=[leases[feed] for feed in feeds],
                checkpoints=[checkpoints[feed] for feed in feeds],
            )

    def list_instruments(self, feed: str) -> Mapping[str, int]:
        with self._transaction() as connection:
            return {row["symbol"]: row["decimals"] for row in QUERIES.list_instruments(connection, feed=feed)}

    def feeds_with_controls(self, feeds: Sequence[str]) -> Sequence[str]:
        with self._transaction() as connection:
            return [row["feed"] for row in QUERIES.find_feeds_with_controls(connection, feeds=list(feeds))]

    def number_controls(self, feed: str, lease: int, limit: int) -> Sequence[PendingControl]:
        with self._leased(feed, lease) as connection:
            QUERIES.number_controls(connection, feed=feed, limit=limit)
            return [PendingControl(**row) for row in QUERIES.read_numbered_controls(connection, feed=feed, limit=limit)]

    def mark_published(self, feed: str, lease: int, control_ids: Sequence[int]) -> None:
        with self._leased(feed, lease) as connection:
            QUERIES.mark_controls_published(connection, feed=feed, control_ids=list(control_ids))

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _leased(self, feed: str, lease: int) -> Iterator[Connection[Row]]:
        """A transaction in which nobody else can take the feed."""
        with self._transaction() as connection:
            if QUERIES.lock_lease(connection, feed=feed) != lease:
                raise LeaseLostError(feed, lease)
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection[Row]]:
        try:
            with transaction(self._pool) as connection:
                yield connection
        except psycopg.OperationalError as error:
            raise StoreAwayError(f"database: {error}") from error
