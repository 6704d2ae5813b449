"""FeedStore and the operator's declarations, over both adapters."""

from __future__ import annotations

import json

import pytest

from contracts.frames_pb2 import Control
from contracts.keys import bucket_of
from feeds.ports import FeedRow, LeaseLostError
from sql.reference_store import (
    DeclaredOtherwiseError,
    FeedSettings,
    UnknownFeedError,
    UnknownInstrumentError,
)
from tests.simulation.database.adapters import Adapter
from tests.simulation.database.world import World


def test_each_declaration_has_its_control_and_repeats_have_none(adapter: Adapter) -> None:
    store, gateway = adapter.reference(), adapter.feeds()
    made = [
        store.create_feed("stocks", 16, "live", FeedSettings(reorder_ms=2_000)),
        store.add_instrument("AAA", "stocks", 2),
        store.add_split("AAA", 500, 3, 1),
        store.resume("AAA"),
        store.set_routing("AAA", 4),
        store.set_settings("stocks", FeedSettings(reference_age_ms={"1h": 5})),
        store.set_settings("stocks", FeedSettings(reference_age_ms={"1d": 6}, max_ahead_ms=7)),
    ]
    assert None not in made
    assert store.create_feed("stocks", 16, "live") is None
    assert store.create_feed("coins", 1, "replay") is None
    assert store.add_instrument("AAA", "stocks", 2) is None
    assert store.add_split("AAA", 500, 6, 2) is None
    assert store.set_routing("AAA", 4) is None
    settings = {"reorder_ms": 2_000, "reference_age_ms": {"1h": 5, "1d": 6}, "max_ahead_ms": 7}
    assert gateway.list_feeds() == [FeedRow("coins", 1, "replay", {}, 0), FeedRow("stocks", 16, "live", settings, 0)]
    assert gateway.list_instruments("stocks") == {"AAA": 2}
    assert gateway.list_instruments("none") == {}
    assert gateway.feeds_with_controls(["stocks", "coins", "none"]) == ["stocks"]
    gateway.take_lease("stocks", "{}")
    controls = gateway.number_controls("stocks", 1, 100)
    assert [c.control_number for c in controls] == [1, 2, 3, 4, 5, 6, 7]
    assert [c.control_id for c in controls] == made
    own = bucket_of("AAA", 16)
    assert [c.bucket for c in controls] == [None, own, own, own, own, None, None]
    kinds = [Control.FromString(c.payload).WhichOneof("kind") for c in controls]
    assert kinds == ["settings", "instrument", "split", "resume", "routing", "settings", "settings"]
    assert Control.FromString(controls[4].payload).routing.version == 2


def test_controls_are_numbered_in_bounded_batches_until_published(world: World) -> None:
    store, gateway = world.adapter.reference(), world.adapter.feeds()
    ids = [store.resume("AAA") for _ in range(3)]
    taken = gateway.take_lease("stocks", "{}")
    assert taken is not None
    first = gateway.number_controls("stocks", 1, 2)
    assert [c.control_number for c in first] == [1, 2]
    assert gateway.number_controls("stocks", 1, 2) == first
    gateway.mark_published("stocks", 1, [c.control_id for c in first])
    assert store.controls_waiting(ids) == 2
    rest = gateway.number_controls("stocks", 1, 9)
    assert [c.control_number for c in rest] == [3, 4]
    gateway.mark_published("stocks", 1, [rest[1].control_id])
    assert [c.control_number for c in gateway.number_controls("stocks", 1, 9)] == [3]
    gateway.mark_published("stocks", 1, [rest[0].control_id])
    assert store.controls_waiting([*ids, 999]) == 0
    assert gateway.feeds_with_controls(["stocks", "coins"]) == ["coins"]
    assert gateway.number_controls("stocks", 1, 9) == []


def test_a_lease_is_raised_and_keeps_the_last_checkpoint(world: World) -> None:
    gateway = world.adapter.feeds()
    taken = gateway.take_lease("stocks", '{"long": {"b": 1, "a": [2]}, "x": null}')
    assert taken is not None
    assert (taken.row.feed, taken.row.lease, taken.row.buckets, taken.row.clock_mode) == ("stocks", 1, 2, "replay")
    assert taken.checkpoint == '{"x": null, "long": {"a": [2], "b": 1}}'
    gateway.take_lease("coins", "{}")
    gateway.save_checkpoints({"stocks": 1, "coins": 9}, {"stocks": '{"n": 2}', "coins": '{"n": 3}'})
    again = gateway.take_lease("stocks", "{}")
    assert again is not None
    assert (again.row.lease, json.loads(again.checkpoint)) == (2, {"n": 2})
    coins = gateway.take_lease("coins", '{"other": 1}')
    assert coins is not None
    assert coins.checkpoint == "{}"
    gateway.save_checkpoints({"stocks": 1}, {"stocks": '{"stale": 1}'})
    gateway.save_checkpoints({"none": 1}, {"none": "{}"})
    assert world.row("feeds", feed="stocks")["checkpoint"] == {"n": 2}
    assert {row.feed: (row.lease, row.signs_of_life) for row in gateway.list_feeds()} == {
        "stocks": (2, 3),
        "coins": (2, 2),
    }
    assert gateway.take_lease("none", "{}") is None


def test_a_gateway_whose_lease_is_over_changes_nothing(world: World) -> None:
    gateway = world.adapter.feeds()
    gateway.take_lease("stocks", "{}")
    (control,) = gateway.number_controls("stocks", 1, 10)
    gateway.take_lease("stocks", "{}")
    world.adapter.reference().resume("AAA")
    for attempt in (
        lambda: gateway.number_controls("stocks", 1, 10),
        lambda: gateway.mark_published("stocks", 1, [control.control_id]),
        lambda: gateway.mark_published("none", 1, [control.control_id]),
    ):
        with pytest.raises(LeaseLostError):
            attempt()
    assert [c.control_number for c in gateway.number_controls("stocks", 2, 10)] == [1, 2]


def test_contradictions_are_refused(world: World) -> None:
    store = world.adapter.reference()
    store.add_split("AAA", 500, 3, 1)
    before = world.adapter.rows("feed_controls")
    for contradiction in (
        lambda: store.create_feed("stocks", 8, "replay"),
        lambda: store.create_feed("stocks", 2, "live"),
        lambda: store.add_instrument("AAA", "stocks", 3),
        lambda: store.add_instrument("AAA", "coins", 2),
        lambda: store.add_split("AAA", 500, 2, 1),
    ):
        with pytest.raises(DeclaredOtherwiseError):
            contradiction()
    for unknown in (
        lambda: store.resume("BBB"), lambda: store.add_split("BBB", 1, 2, 1), lambda: store.set_routing("BBB", 2),
    ):  # fmt: skip
        with pytest.raises(UnknownInstrumentError):
            unknown()
    for unknown in (
        lambda: store.add_instrument("BBB", "none", 2), lambda: store.set_settings("none", FeedSettings()),
    ):  # fmt: skip
        with pytest.raises(UnknownFeedError):
            unknown()
    assert world.adapter.rows("feed_controls") == before
