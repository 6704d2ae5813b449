"""What an operator declares: each write puts the row and its control for prices.v1 into one transaction.

Repeating a declaration changes nothing and returns None; one that contradicts what is stored is refused. The
returned control_id is what a barrier waits for: see `controls_waiting`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from psycopg import Connection
from psycopg.types.json import Jsonb

from contracts.frames_pb2 import Control, Instrument, Resume, Routing, Settings, Split
from contracts.keys import bucket_of
from contracts.routes import SymbolRoute
from contracts.vocabulary import WINDOWS
from sql.connection import Pool, Row, transaction
from sql.named import load_queries

QUERIES: Final = load_queries("reference")
RESHARDS: Final = load_queries("reshard")
REBUILDS: Final = load_queries("rebuild")


class DeclarationError(ValueError):
    """A declaration that can't be taken; the message says which and what to do."""


class UnknownFeedError(DeclarationError):
    """`feed` is not declared."""

    def __init__(self, feed: str) -> None:
        super().__init__(f"feed {feed!r} does not exist; declare it first")
        self.feed = feed


class UnknownInstrumentError(DeclarationError):
    """`symbol` is no instrument."""

    def __init__(self, symbol: str) -> None:
        super().__init__(f"instrument {symbol!r} does not exist; declare it first")
        self.symbol = symbol


class DeclaredOtherwiseError(DeclarationError):
    """`what` is stored with other values, which can't be changed once prices have come on them."""

    def __init__(self, what: str, stored: str) -> None:
        super().__init__(f"{what} is declared already as {stored}; it can't be changed")
        self.what, self.stored = what, stored


class ProtocolUnderWayError(DeclarationError):
    """What was asked for must wait until another move or rebuild of the same shards is done."""

    def __init__(self, what: str, under_way: str) -> None:
        super().__init__(f"{what} must wait: {under_way}; ask again when it is done")
        self.what, self.under_way = what, under_way


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """What of a feed's settings is set; the rest keeps its default. Milliseconds; max_ahead_ms 0: no bound."""

    reorder_ms: int | None = None
    reference_age_ms: Mapping[str, int] = field(default_factory=dict)
    max_ahead_ms: int | None = None

    def __post_init__(self) -> None:
        unknown = set(self.reference_age_ms) - set(WINDOWS)
        if unknown:
            raise DeclarationError(f"reference_age_ms: no such window as {', '.join(sorted(unknown))}")
        numbers = [self.reorder_ms, self.max_ahead_ms, *self.reference_age_ms.values()]
        if any(number is not None and not 0 <= number < 1 << 62 for number in numbers):
            raise DeclarationError("settings are milliseconds, none below 0")

    def as_json(self) -> dict[str, Any]:
        """Only what is set, as stored in feeds.settings."""
        found = {
            "reorder_ms": self.reorder_ms,
            "max_ahead_ms": self.max_ahead_ms,
            "reference_age_ms": dict(self.reference_age_ms) or None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def as_control(self) -> Control:
        return Control(
            settings=Settings(
                reorder_ms=self.reorder_ms, reference_age_ms=self.reference_age_ms, max_ahead_ms=self.max_ahead_ms
            )
        )


class ReferenceStore:
    """Feeds, settings, instruments, splits, resumes, routing."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def create_feed(
        self, feed: str, buckets: int, clock_mode: Literal["live", "replay"], settings: FeedSettings | None = None
    ) -> int | None:
        """Raises DeclaredOtherwiseError when it exists with other buckets or clock."""
        settings = settings or FeedSettings()
        with transaction(self._pool) as connection:
            fresh = QUERIES.insert_feed(
                connection, feed=feed, buckets=buckets, clock_mode=clock_mode, settings=Jsonb(settings.as_json())
            )
            if not fresh:
                row = QUERIES.lock_feed(connection, feed=feed)
                if (row["buckets"], row["clock_mode"]) != (buckets, clock_mode):
                    raise DeclaredOtherwiseError(f"feed {feed}", f"{row['buckets']} buckets, {row['clock_mode']} clock")
                return None
            if not settings.as_json():
                return None
            return insert_control(connection, feed, None, settings.as_control())

    def set_settings(self, feed: str, settings: FeedSettings) -> int:
        """What is set replaces what was; windows not named keep theirs. Raises UnknownFeedError."""
        with transaction(self._pool) as connection:
            row = QUERIES.lock_feed(connection, feed=feed)
            if row is None:
                raise UnknownFeedError(feed)
            merged = {**row["settings"], **settings.as_json()}
            ages = {**row["settings"].get("reference_age_ms", {}), **settings.reference_age_ms}
            if ages:
                merged["reference_age_ms"] = ages
            QUERIES.write_settings(connection, feed=feed, settings=Jsonb(merged))
            return insert_control(connection, feed, None, settings.as_control())

    def set_source(self, feed: str, source: Mapping[str, Any] | None) -> bool:
        """Where the feed's prices come from beside ticks.v1 (feeds/sources/plug_ins.py), checked by the caller.

        None: nowhere else. False: it was so already. No control: a source changes no result. Raises UnknownFeedError.
        """
        with transaction(self._pool) as connection:
            row = QUERIES.lock_feed(connection, feed=feed)
            if row is None:
                raise UnknownFeedError(feed)
            settings = {name: value for name, value in row["settings"].items() if name != "source"}
            if source is not None:
                settings["source"] = dict(source)
            if settings == row["settings"]:
                return False
            QUERIES.write_settings(connection, feed=feed, settings=Jsonb(settings))
            return True

    def add_instrument(self, symbol: str, feed: str, decimals: int) -> int | None:
        """symbol: canonical (contracts.symbols). Raises UnknownFeedError, DeclaredOtherwiseError."""
        with transaction(self._pool) as connection:
            row = QUERIES.lock_feed(connection, feed=feed)
            if row is None:
                raise UnknownFeedError(feed)
            if not QUERIES.insert_instrument(connection, symbol=symbol, feed=feed, decimals=decimals):
                known = QUERIES.find_instrument(connection, symbol=symbol)
                if (known["feed"], known["decimals"]) != (feed, decimals):
                    raise DeclaredOtherwiseError(symbol, f"{known['decimals']} decimals of feed {known['feed']}")
                return None
            control = Control(instrument=Instrument(symbol=symbol, decimals=decimals))
            return insert_control(connection, feed, bucket_of(symbol, row["buckets"]), control)

    def add_split(self, symbol: str, effective_from_ms: int, new_shares: int, old_shares: int) -> int | None:
        """new_shares for old_shares from that event time on. Raises UnknownInstrumentError, DeclaredOtherwiseError."""
        with transaction(self._pool) as connection:
            row = _instrument(connection, symbol)
            if not QUERIES.insert_split(
                connection,
                symbol=symbol,
                effective_from_ms=effective_from_ms,
                new_shares=new_shares,
                old_shares=old_shares,
            ):
                known = QUERIES.find_split(connection, symbol=symbol, effective_from_ms=effective_from_ms)
                if known["new_shares"] * old_shares != new_shares * known["old_shares"]:
                    stored = f"{known['new_shares']}:{known['old_shares']}"
                    raise DeclaredOtherwiseError(f"split of {symbol} at {effective_from_ms}", stored)
                return None
            split = Split(
                symbol=symbol, effective_from_ms=effective_from_ms, new_shares=new_shares, old_shares=old_shares
            )
            control = Control(split=split)
            return insert_control(connection, row["feed"], bucket_of(symbol, row["buckets"]), control)

    def resume(self, symbol: str) -> int:
        """End the suppression that a late split began. Raises UnknownInstrumentError."""
        with transaction(self._pool) as connection:
            row = _instrument(connection, symbol)
            control = Control(resume=Resume(symbol=symbol))
            return insert_control(connection, row["feed"], bucket_of(symbol, row["buckets"]), control)

    def set_routing(self, symbol: str, shards: int) -> int | None:
        """Begin to move the symbol into `shards` shards of its own (1: its bucket's): finalizer/resharder.py goes on.

        Raises UnknownInstrumentError, ProtocolUnderWayError.
        """
        with transaction(self._pool) as connection:
            row = _instrument(connection, symbol)
            QUERIES.lock_feed(connection, feed=row["feed"])  # one request at a time: they look at each other
            row = _instrument(connection, symbol)
            under_way = RESHARDS.find_open_reshard(connection, symbol=symbol)
            if under_way is not None:
                if under_way["new_shards"] == shards:
                    return None
                moving = f"{symbol} is moving from {under_way['old_shards']} to {under_way['new_shards']} shards"
                raise ProtocolUnderWayError(f"moving {symbol} to {shards} shards", moving)
            if row["shards"] == shards:
                return None
            old = SymbolRoute(symbol, row["feed"], row["buckets"], row["shards"])
            new = replace(old, shards=shards)
            rebuilt = list(REBUILDS.find_open_rebuilds(connection, shards=[*old.all_shards(), *new.all_shards()]))
            if rebuilt:
                under_rebuild = f"shard {rebuilt[0]['shard']} is being rebuilt or verified"
                raise ProtocolUnderWayError(f"moving {symbol} to {shards} shards", under_rebuild)
            version = RESHARDS.raise_routing_version(connection, symbol=symbol)
            RESHARDS.insert_reshard(
                connection, symbol=symbol, version=version, old_shards=row["shards"], new_shards=shards
            )
            routing = Routing(
                symbol=symbol, shards=shards, previous_shards=row["shards"], version=version, phase=Routing.OPEN
            )
            bucket = bucket_of(symbol, row["buckets"])
            return insert_control(connection, row["feed"], bucket, Control(routing=routing))

    def controls_waiting(self, control_ids: Collection[int]) -> int:
        """How many of these controls are not acknowledged in prices.v1 yet."""
        with transaction(self._pool) as connection:
            count: int = QUERIES.count_unpublished_controls(connection, control_ids=list(control_ids))
        return count


def _instrument(connection: Connection[Row], symbol: str) -> Row:
    row: Row | None = QUERIES.find_instrument(connection, symbol=symbol)
    if row is None:
        raise UnknownInstrumentError(symbol)
    return row


def insert_control(connection: Connection[Row], feed: str, bucket: int | None, control: Control) -> int:
    """A control for the feed's gateway to publish; its control_id."""
    control_id: int = QUERIES.insert_control(
        connection, feed=feed, bucket=bucket, payload=control.SerializeToString(deterministic=True)
    )
    return control_id
