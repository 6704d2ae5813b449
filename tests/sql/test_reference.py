"""Declarations and the gateway's side of their controls, on real Postgres."""

from __future__ import annotations

import pytest

from contracts.frames_pb2 import Control
from contracts.keys import bucket_of
from feeds.ports import LeaseLostError
from sql.connection import Pool
from sql.feed_store import PostgresFeedStore
from sql.rebuild_store import PostgresRebuildStore
from sql.reference_store import (
    DeclaredOtherwiseError,
    FeedSettings,
    ProtocolUnderWayError,
    ReferenceStore,
    UnknownFeedError,
    UnknownInstrumentError,
)
from tests.finalizer.world import World


def test_each_declaration_has_its_control_and_repeats_have_none(pool: Pool) -> None:
    store, gateway = ReferenceStore(pool), PostgresFeedStore(pool)
    made = [
        store.create_feed("stocks", 16, "live", FeedSettings(reorder_ms=2_000)),
        store.add_instrument("AAA", "stocks", 2),
        store.add_split("AAA", 500, 3, 1),
        store.resume("AAA"),
        store.set_routing("AAA", 4),
        store.set_settings("stocks", FeedSettings(reference_age_ms={"1h": 5})),
    ]
    assert None not in made
    assert store.create_feed("stocks", 16, "live") is None
    assert store.add_instrument("AAA", "stocks", 2) is None
    assert store.add_split("AAA", 500, 6, 2) is None
    assert store.set_routing("AAA", 4) is None
    taken = gateway.take_lease("stocks", '{"a": 1}')
    assert taken is not None
    assert (taken.row.lease, taken.checkpoint) == (1, '{"a": 1}')
    assert taken.row.settings == {"reorder_ms": 2_000, "reference_age_ms": {"1h": 5}}
    assert gateway.list_instruments("stocks") == {"AAA": 2}
    assert gateway.feeds_with_controls(["stocks", "none"]) == ["stocks"]
    controls = gateway.number_controls("stocks", 1, 100)
    assert [c.control_number for c in controls] == [1, 2, 3, 4, 5, 6]
    own = bucket_of("AAA", 16)
    assert [c.bucket for c in controls] == [None, own, own, own, own, None]
    kinds = [Control.FromString(c.payload).WhichOneof("kind") for c in controls]
    assert kinds == ["settings", "instrument", "split", "resume", "routing", "settings"]
    assert Control.FromString(controls[4].payload).routing.version == 2
    ids = [c.control_id for c in controls]
    assert store.controls_waiting(ids) == 6
    gateway.mark_published("stocks", 1, ids)
    assert store.controls_waiting(ids) == 0
    assert gateway.number_controls("stocks", 1, 100) == []


def test_a_source_is_kept_beside_other_settings_and_is_no_control(pool: Pool) -> None:
    store, gateway = ReferenceStore(pool), PostgresFeedStore(pool)
    store.create_feed("stocks", 1, "live", FeedSettings(reorder_ms=2_000))
    source = {"kind": "http", "url": "http://h", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    assert store.set_source("stocks", source)
    assert not store.set_source("stocks", source)
    store.set_settings("stocks", FeedSettings(max_ahead_ms=5))
    [row] = gateway.list_feeds()
    assert row.settings == {"reorder_ms": 2_000, "max_ahead_ms": 5, "source": source}
    assert store.set_source("stocks", None)
    assert "source" not in gateway.list_feeds()[0].settings
    gateway.take_lease("stocks", "{}")
    assert len(gateway.number_controls("stocks", 1, 100)) == 2
    with pytest.raises(UnknownFeedError):
        store.set_source("nobody", source)


def test_a_control_that_commits_late_gets_a_later_number(pool: Pool) -> None:
    store, gateway = ReferenceStore(pool), PostgresFeedStore(pool)
    store.create_feed("stocks", 1, "live")
    gateway.take_lease("stocks", "{}")
    insert = "INSERT INTO feed_controls (feed, payload) VALUES ('stocks', %s)"
    with pool.connection() as late:
        late.execute(insert, (b"late",))
        store.add_instrument("AAA", "stocks", 2)
        (first,) = gateway.number_controls("stocks", 1, 100)
        assert first.control_number == 1
    first, second = gateway.number_controls("stocks", 1, 100)
    assert (second.payload, second.control_number) == (b"late", 2)
    assert second.control_id < first.control_id


def test_a_gateway_whose_lease_is_over_changes_nothing(pool: Pool) -> None:
    store, gateway = ReferenceStore(pool), PostgresFeedStore(pool)
    store.create_feed("stocks", 1, "live")
    store.add_instrument("AAA", "stocks", 2)
    gateway.take_lease("stocks", "{}")
    (control,) = gateway.number_controls("stocks", 1, 10)
    assert gateway.take_lease("stocks", '{"other": 1}') is not None
    with pytest.raises(LeaseLostError):
        gateway.number_controls("stocks", 1, 10)
    with pytest.raises(LeaseLostError):
        gateway.mark_published("stocks", 1, [control.control_id])
    gateway.save_checkpoints({"stocks": 1}, {"stocks": '{"stale": 1}'})
    taken = gateway.take_lease("stocks", "{}")
    assert taken is not None
    assert taken.checkpoint == "{}"
    assert gateway.number_controls("stocks", 3, 10) == [control]
    assert gateway.take_lease("none", "{}") is None


def test_contradictions_are_refused(pool: Pool) -> None:
    store = ReferenceStore(pool)
    store.create_feed("stocks", 16, "live")
    store.create_feed("other", 1, "live")
    store.add_instrument("AAA", "stocks", 2)
    store.add_split("AAA", 500, 3, 1)
    for contradiction in (
        lambda: store.create_feed("stocks", 8, "live"),
        lambda: store.add_instrument("AAA", "stocks", 3),
        lambda: store.add_instrument("AAA", "other", 2),
        lambda: store.add_split("AAA", 500, 2, 1),
    ):
        with pytest.raises(DeclaredOtherwiseError):
            contradiction()
    with pytest.raises(UnknownFeedError):
        store.add_instrument("BBB", "none", 2)
    with pytest.raises(UnknownInstrumentError):
        store.resume("BBB")


def test_one_reshard_of_a_symbol_at_a_time(pool: Pool) -> None:
    World(pool)
    store, rebuilds = ReferenceStore(pool), PostgresRebuildStore(pool)
    assert store.set_routing("AAA", 4) is not None
    assert store.set_routing("AAA", 4) is None
    with pytest.raises(ProtocolUnderWayError, match="AAA is moving from 1 to 4 shards; ask again"):
        store.set_routing("AAA", 2)
    with pytest.raises(ProtocolUnderWayError, match="AAA is moving to 4 shards"):
        rebuilds.request("stocks", None, repair=True)


def test_shards_that_are_read_out_do_not_move(pool: Pool) -> None:
    world = World(pool)
    store, rebuilds = ReferenceStore(pool), PostgresRebuildStore(pool)
    store.add_instrument("BBB", "stocks", 2)
    (first,) = rebuilds.request(None, "AAA", repair=False)
    with pytest.raises(ProtocolUnderWayError, match="is being rebuilt or verified"):
        store.set_routing("BBB", 2)
    with pytest.raises(ProtocolUnderWayError, match="is being rebuilt or verified"):
        rebuilds.request(None, None, repair=True)
    with pytest.raises(UnknownInstrumentError):
        rebuilds.request(None, "CCC", repair=True)
    with pytest.raises(UnknownFeedError):
        rebuilds.request("none", None, repair=True)
    world.rows("UPDATE rebuilds SET phase = 'DONE'")
    assert rebuilds.request("stocks", None, repair=True) > [first]
