"""What an operator declares, in memory: sql/queries/reference.sql and sql/reference_store.py, query by query."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from contracts.frames_pb2 import Control, Instrument, Resume, Routing, Split
from contracts.keys import bucket_of
from contracts.routes import SymbolRoute
from simulation.database.engine import MemoryDatabase
from simulation.database.schema import ONLY
from simulation.database.table import Row
from simulation.database.transaction import NO_KEY_UPDATE, Transaction
from sql.reference_store import (
    DeclaredOtherwiseError,
    FeedSettings,
    ProtocolUnderWayError,
    UnknownFeedError,
    UnknownInstrumentError,
)


class MemoryReferenceStore:
    """sql.reference_store.ReferenceStore: the same contract and errors."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    def create_feed(
        self, feed: str, buckets: int, clock_mode: Literal["live", "replay"], settings: FeedSettings | None = None
    ) -> int | None:
        settings = settings or FeedSettings()
        with self._database.transaction() as tx:
            values = {"feed": feed, "buckets": buckets, "clock_mode": clock_mode, "settings": settings.as_json()}
            tx.statement("insert_feed")
            if tx.insert_new(self._database.feeds, values) is None:
                row = self._locked_feed(tx, feed)
                if (row["buckets"], row["clock_mode"]) != (buckets, clock_mode):
                    raise DeclaredOtherwiseError(f"feed {feed}", f"{row['buckets']} buckets, {row['clock_mode']} clock")
                return None
            return self._control(tx, feed, None, settings.as_control()) if settings.as_json() else None

    def set_settings(self, feed: str, settings: FeedSettings) -> int:
        with self._database.transaction() as tx:
            row = self._locked_feed(tx, feed)
            merged = {**row["settings"], **settings.as_json()}
            ages = {**row["settings"].get("reference_age_ms", {}), **settings.reference_age_ms}
            if ages:
                merged["reference_age_ms"] = ages
            tx.statement("write_settings")
            record = self._database.feeds.primary.records[feed]
            tx.lock(record, NO_KEY_UPDATE)
            tx.update(record, {"settings": merged})
            return self._control(tx, feed, None, settings.as_control())

    def add_instrument(self, symbol: str, feed: str, decimals: int) -> int | None:
        with self._database.transaction() as tx:
            row = self._locked_feed(tx, feed)
            tx.statement("insert_instrument")
            values = {"symbol": symbol, "feed": feed, "decimals": decimals}
            if tx.insert_new(self._database.instruments, values) is None:
                known = self._instrument(tx, symbol)
                if (known["feed"], known["decimals"]) != (feed, decimals):
                    raise DeclaredOtherwiseError(symbol, f"{known['decimals']} decimals of feed {known['feed']}")
                return None
            control = Control(instrument=Instrument(symbol=symbol, decimals=decimals))
            return self._control(tx, feed, bucket_of(symbol, row["buckets"]), control)

    def add_split(self, symbol: str, effective_from_ms: int, new_shares: int, old_shares: int) -> int | None:
        values: Row = {
            "symbol": symbol,
            "effective_from_ms": effective_from_ms,
            "new_shares": new_shares,
            "old_shares": old_shares,
        }
        with self._database.transaction() as tx:
            row = self._instrument(tx, symbol)
            tx.statement("insert_split")
            if tx.insert_new(self._database.splits, values) is None:
                tx.statement("find_split")
                known = tx.find(self._database.splits, (symbol, effective_from_ms))
                assert known is not None  # whoever inserted it has committed
                if known["new_shares"] * old_shares != new_shares * known["old_shares"]:
                    stored = f"{known['new_shares']}:{known['old_shares']}"
                    raise DeclaredOtherwiseError(f"split of {symbol} at {effective_from_ms}", stored)
                return None
            return self._control_of(tx, row, Control(split=Split(**values)))

    def resume(self, symbol: str) -> int:
        with self._database.transaction() as tx:
            return self._control_of(tx, self._instrument(tx, symbol), Control(resume=Resume(symbol=symbol)))

    def set_routing(self, symbol: str, shards: int) -> int | None:
        database = self._database
        with database.transaction() as tx:
            self._locked_feed(tx, self._instrument(tx, symbol)["feed"])
            row = self._instrument(tx, symbol)
            feed = tx.find(database.feeds, row["feed"])
            assert feed is not None  # a foreign key
            tx.statement("find_open_reshard")
            for under_way in open_reshards(database, tx):
                if under_way["symbol"] != symbol:
                    continue
                if under_way["new_shards"] == shards:
                    return None
                moving = f"{symbol} is moving from {under_way['old_shards']} to {under_way['new_shards']} shards"
                raise ProtocolUnderWayError(f"moving {symbol} to {shards} shards", moving)
            if row["shards"] == shards:
                return None
            old = SymbolRoute(symbol, row["feed"], feed["buckets"], row["shards"])
            new = replace(old, shards=shards)
            tx.statement("find_open_rebuilds")
            touched = {*old.all_shards(), *new.all_shards()}
            rebuilt = sorted(row["shard"] for row in open_rebuilds(database, tx) if row["shard"] in touched)
            if rebuilt:
                under_rebuild = f"shard {rebuilt[0]} is being rebuilt or verified"
                raise ProtocolUnderWayError(f"moving {symbol} to {shards} shards", under_rebuild)
            tx.statement("raise_routing_version")
            record = database.instruments.primary.records[symbol]
            version = tx.lock(record, NO_KEY_UPDATE)["routing_version"] + 1
            tx.update(record, {"routing_version": version})
            tx.statement("insert_reshard")
            values = {"symbol": symbol, "version": version, "old_shards": old.shards, "new_shards": shards}
            tx.insert(database.reshards, values)
            routing = Routing(
                symbol=symbol, shards=shards, previous_shards=old.shards, version=version, phase=Routing.OPEN
            )
            return self._control_of(tx, row, Control(routing=routing))

    def controls_waiting(self, control_ids: Collection[int]) -> int:
        with self._database.transaction() as tx:
            tx.statement("count_unpublished_controls")
            rows = [tx.find(self._database.feed_controls, control_id) for control_id in sorted(set(control_ids))]
            return sum(row is not None and row["published_at"] is None for row in rows)

    # -- statements
    def _locked_feed(self, tx: Transaction, feed: str) -> Row:
        tx.statement("lock_feed")
        record = self._database.feeds.primary.records.get(feed)
        if record is None or tx.see(record) is None:
            raise UnknownFeedError(feed)
        return tx.lock(record, NO_KEY_UPDATE)

    def _instrument(self, tx: Transaction, symbol: str) -> Row:
        tx.statement("find_instrument")
        row = tx.find(self._database.instruments, symbol)
        if row is None:
            raise UnknownInstrumentError(symbol)
        return row

    def _control_of(self, tx: Transaction, instrument: Row, control: Control) -> int:
        """A control for the instrument's bucket."""
        feed = tx.find(self._database.feeds, instrument["feed"])
        assert feed is not None  # a foreign key
        return self._control(tx, feed["feed"], bucket_of(instrument["symbol"], feed["buckets"]), control)

    def _control(self, tx: Transaction, feed: str, bucket: int | None, control: Control) -> int:
        return insert_control(self._database, tx, feed, bucket, control)


def insert_control(database: MemoryDatabase, tx: Transaction, feed: str, bucket: int | None, control: Control) -> int:
    """Its control_id."""
    tx.statement("insert_control")
    values = {"feed": feed, "bucket": bucket, "payload": control.SerializeToString(deterministic=True)}
    control_id: int = tx.insert(database.feed_controls, values)["control_id"]
    return control_id


def open_reshards(database: MemoryDatabase, tx: Transaction) -> list[Row]:
    """Under way, the oldest first."""
    rows = (tx.see(record) for record in database.reshards.indexes["open"].find(ONLY))
    return [row for row in rows if row is not None and row["phase"] != "DONE"]


def open_rebuilds(database: MemoryDatabase, tx: Transaction) -> list[Row]:
    """Under way, the oldest first."""
    rows = (tx.see(record) for record in database.rebuilds.indexes["open"].find(ONLY))
    return [row for row in rows if row is not None and row["phase"] != "DONE"]
