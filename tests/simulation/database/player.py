"""Plays drawn operations on one adapter: what each returns or raises, in a form that is the same for every adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any

import psycopg

from api.ports import AlertFilter
from contracts.frames_pb2 import Routing
from contracts.vocabulary import Status
from finalizer.channels.outcome import Delivery, Result
from finalizer.domain.batch import BatchPlan
from finalizer.domain.lifecycle import Event, sources
from finalizer.ports import Moves, NewDelivery, Settled
from finalizer.shard_ports import BEGINNING, Phase, RebuildPhase, ReshardWork
from simulation.database.errors import ConstraintError
from sql.reference_store import FeedSettings
from tests.simulation.database.adapters import Adapter, without_stamp
from tests.simulation.database.world import FINALIZED_MS, TOPIC, TRIGGERS, World

PARTITIONS = 2


class Player:
    """Keeps what an adapter gave that later operations name: fences, claims, outbox rows."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.world = World(adapter)
        self.finalizer, self.deliveries = adapter.finalizer(), adapter.deliveries()
        self.feeds, self.reference = adapter.feeds(), adapter.reference()
        self.reshards, self.rebuilds = adapter.reshards(), adapter.rebuilds()
        self.relays = [adapter.rule_relay(), adapter.rule_relay()]
        self.trigger_relay = adapter.trigger_relay()
        self.fences: list[dict[str, int]] = [{}, {}]
        self.outbox: dict[int, str] = {}  # alert -> trigger_id
        self.claimed: list[Delivery] = []

    def play(self, name: str, *arguments: Any) -> Any:
        """The outcome, comparable."""
        self.adapter.clock.now_ms += 1
        try:
            return comparable(getattr(self, name)(*arguments))
        except (psycopg.IntegrityError, ConstraintError):
            return "ConstraintError"
        except Exception as error:
            return type(error).__name__, without_stamp(str(error))

    def close(self) -> None:
        for relay in self.relays:
            relay.resign()

    def _api(self, request: Callable[[Any], Any]) -> Any:
        return self.adapter.api.transact(request)

    # -- owners
    def create(self, fields: dict[str, Any]) -> Any:
        return self.world.try_create(**fields)

    def move(self, event: Event, owner_id: int, alert_id: int, anywhere: bool) -> Any:
        from_statuses = frozenset(Status) - {Status.TRIGGERED} if anywhere else sources(event)

        def request(t: Any) -> Any:
            moves = {Event.CANCEL: t.alerts.cancel, Event.PAUSE: t.alerts.pause, Event.RESUME: t.alerts.resume}
            return moves[event](owner_id, alert_id, from_statuses)

        return self._api(request)

    def look(self, owner_id: int, alert_id: int, status: str | None, symbol: str | None, clock_ms: int) -> Any:
        def request(t: Any) -> Any:
            clocks_ms = {"stocks": clock_ms}
            return (
                t.alerts.find(owner_id, alert_id, clocks_ms),
                t.alerts.page(owner_id, AlertFilter(status, symbol), 1 << 60, 5, clocks_ms),
                t.alerts.statuses([alert_id, alert_id + 1]),
                t.alerts.deliveries(owner_id, alert_id),
                t.alerts.feed_frontiers(),
                t.alerts.find_idempotent(owner_id, f"k{alert_id % 6}"),
                t.channels.page(owner_id, 3),
                t.channels.missing(owner_id, [1, 2, 3, 4, 5]),
            )

        return self._api(request)

    def add_channel(self, owner_id: int, address: str, max_channels: int) -> Any:
        return self._api(
            lambda t: (
                t.channels.insert(owner_id, "webhook", address, b"sealed", max_channels),
                t.channels.find_address(owner_id, "webhook", address),
            )
        )

    def disable_channel(self, owner_id: int, channel_id: int) -> Any:
        return self._api(lambda t: t.channels.disable(owner_id, channel_id))

    def set_quota(self, owner_id: int, quota: int) -> None:
        self._api(lambda t: t.owners.set_quota(owner_id, quota))

    # -- finalizer
    def finalize(self, plan: BatchPlan, partitions: Sequence[int], stale: bool, fails: bool) -> Any:
        positions = self.finalizer.positions(TOPIC, PARTITIONS)
        moves = {p: (positions[p] + stale, positions[p] + 3) for p in partitions}
        with self.finalizer.advance(Moves(TOPIC, moves)) as work:
            before = work.progress([progress.shard for progress in plan.progress])
            outcome = work.apply(plan, FINALIZED_MS)
            if fails:
                raise ZeroDivisionError
        return before, outcome.activated, sorted(outcome.triggered), sorted(outcome.refused)

    def sweep(self, limit: int) -> Any:
        due = self.finalizer.shards_due(10)
        count, gaps = self.finalizer.gaps(2)
        return (
            count,
            [(gap.shard, gap.what) for gap in gaps],
            due,
            [self.finalizer.expire(shard, at_ms, limit, FINALIZED_MS) for shard, at_ms in due],
        )

    # -- reshards and rebuilds
    def reshard(self, what: str, given: Any, number: int) -> Any:
        if what == "request":
            return self.reference.set_routing(given, number)
        for reshard_id in self.reshards.under_way()[:1]:
            with self.reshards.hold(reshard_id) as work:
                assert work is not None
                return work.reshard, self._reshard_step(work, what, given, number)
        return None

    def _reshard_step(self, work: ReshardWork, what: str, phase: Phase, limit: int) -> Any:
        new, said = work.reshard.new, []
        if what in ("copy", "switch"):
            for shard in work.reshard.old.all_shards():
                page = work.live(shard, BEGINNING, limit)
                targets = {alert.alert_id: new.shard_of(alert.alert_id) for alert in page if alert.symbol == new.symbol}
                moved = work.copy(shard, targets) if what == "copy" else work.switch(shard, targets, FINALIZED_MS)
                said.append((page, moved, work.live(shard, page[-1].cursor, 2) if page else None))
        elif what == "route":
            work.route_creates()
        elif what == "enter":
            work.enter(phase)
        elif what == "send":
            work.send(Routing.COPY)
        elif what == "marked":
            said += [work.marked(p, new.all_shards()) for p in (Routing.OPEN, Routing.COPY, Routing.END)]
            said.append(work.unpublished(new.all_shards(), limit))
        else:
            work.forget_claims(limit)
        return said

    def rebuild(self, what: str, symbol: str | None, phase: RebuildPhase, repair: bool) -> Any:
        if what == "request":
            return self.rebuilds.request(None, symbol, repair=repair)
        for rebuild_id in self.rebuilds.under_way()[:1]:
            with self.rebuilds.hold(rebuild_id) as work:
                assert work is not None
                if what == "enter":
                    work.enter(phase)
                    return work.rebuild
                page = work.live(BEGINNING, 5)
                read = work.read([alert.alert_id for alert in page])
                work.send(read.command, read.rules)
                return work.rebuild, page, read.command.SerializeToString(), read.rules, read.held_by_others
        return None

    # -- relays
    def lead(self, relay: int) -> bool:
        return self.relays[relay].lead()

    def resign(self, relay: int) -> None:
        self.relays[relay].resign()

    def take(self, relay: int, limit: int) -> Any:
        taken = self.relays[relay].take(self.relays[relay].shards_waiting(limit))
        self.fences[relay] |= taken
        return taken

    def number(self, relay: int, limit: int) -> int:
        return self.relays[relay].number(self.fences[relay], limit)

    def publish(self, relay: int, limit: int, marked: int) -> Any:
        found = self.relays[relay].numbered(self.fences[relay], limit)
        self.relays[relay].mark_published(self.fences[relay], [c.command_id for c in found[:marked]])
        return [(c.command_id, c.shard, c.epoch, c.number, c.command.SerializeToString()) for c in found]

    def publish_triggers(self, limit: int, fails: bool) -> Any:
        with self.trigger_relay.unpublished(limit) as work:
            self.outbox |= {int(t.trigger_id.split("_")[1]): t.trigger_id for t in work.triggers}
            if fails:
                raise ZeroDivisionError
            work.mark_published()
        return [asdict(trigger) for trigger in work.triggers]

    # -- notifier
    def accept(self, wanted: Sequence[tuple[int, int, tuple[int, ...]]], now_ms: int, stale: bool) -> int:
        position = self.deliveries.positions(TRIGGERS, 1)[0]
        new = [
            NewDelivery(self.outbox.get(alert_id, "trg_0_0"), owner_id, channel_ids, b"body")
            for alert_id, owner_id, channel_ids in wanted
        ]
        return self.deliveries.accept(Moves(TRIGGERS, {0: (position + stale, position + 1)}), new, now_ms)

    def claim(self, now_ms: int, lease_ms: int) -> Any:
        found = sorted(self.deliveries.claim(100, now_ms, lease_ms), key=lambda d: d.delivery_id)
        self.claimed += found
        return found

    def settle(self, results: Sequence[tuple[int, Result, str, int, bool]], now_ms: int) -> int:
        self.claimed.sort(key=lambda d: (d.delivery_id, d.token))
        settled = {
            place % len(self.claimed): (result, reason, next_ms, gone)
            for place, result, reason, next_ms, gone in results
            if self.claimed
        }
        return self.deliveries.settle(
            [Settled(self.claimed[place], *given) for place, given in settled.items()], now_ms
        )

    # -- gateway and operator
    def take_lease(self, feed: str, checkpoint: str) -> Any:
        return self.feeds.take_lease(feed, checkpoint)

    def save_checkpoints(self, leases: dict[str, int], checkpoints: dict[str, str]) -> None:
        self.feeds.save_checkpoints(leases, checkpoints)

    def publish_controls(self, feed: str, lease: int, limit: int, marked: int) -> Any:
        found = self.feeds.number_controls(feed, lease, limit)
        self.feeds.mark_published(feed, lease, [c.control_id for c in found[:marked]])
        return found, self.feeds.feeds_with_controls([feed, "stocks"]), self.feeds.list_instruments(feed)

    def declare(self, what: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(self.reference, what)(*arguments), self.reference.controls_waiting(range(1, 9))

    def set_settings(self, feed: str, reorder_ms: int, window: str, age_ms: int) -> Any:
        settings = FeedSettings(reorder_ms=reorder_ms, reference_age_ms={window: age_ms})
        return self.reference.set_settings(feed, settings), self.feeds.list_feeds()


def comparable(value: Any) -> Any:
    """Plain data without stamps of the server's clock."""
    if is_dataclass(value) and not isinstance(value, type):
        return comparable({"": type(value).__name__, **asdict(value)})
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    return "a time" if isinstance(value, datetime) else without_stamp(value)
