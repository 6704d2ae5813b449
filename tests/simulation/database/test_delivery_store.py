"""DeliveryStore, over both adapters."""

from __future__ import annotations

import pytest

from finalizer.channels.outcome import Delivery, Result
from finalizer.ports import Moves, NewDelivery, PositionsMovedError, Settled
from tests.simulation.database.world import TRIGGERS, World

NOW_MS, LEASE_MS = 5_000_000, 30_000


class Ledger:
    """A trigger, a mail channel and a webhook."""

    def __init__(self, world: World) -> None:
        self.world, self.store = world, world.adapter.deliveries()
        self.mail, self.hook = world.add_channel(), world.add_channel("webhook", "https://x.example/", b"sealed")
        (alert_id,) = world.create_active()
        world.trigger(alert_id)
        with world.adapter.trigger_relay().unpublished(1) as work:
            self.trigger_id = work.triggers[0].trigger_id

    def accept(self, *deliveries: NewDelivery) -> int:
        position = self.store.positions(TRIGGERS, 1)[0]
        return self.store.accept(Moves(TRIGGERS, {0: (position, position + 1)}), deliveries, NOW_MS)

    def new(self, *channel_ids: int, owner_id: int | None = None, trigger_id: str | None = None) -> NewDelivery:
        owner = self.world.owner_id if owner_id is None else owner_id
        return NewDelivery(trigger_id or self.trigger_id, owner, channel_ids, b"body")

    def rows(self) -> list[tuple[int, str, int, int, int]]:
        columns = ("channel_id", "status", "attempts", "token", "next_attempt_at")
        return sorted(tuple(row[name] for name in columns) for row in self.world.adapter.rows("deliveries"))


@pytest.fixture
def ledger(world: World) -> Ledger:
    return Ledger(world)


def settled(delivery: Delivery, result: Result, next_attempt_ms: int = 0, **fields: object) -> Settled:
    given = {"reason": "", "disable_channel": False, **fields}
    return Settled(delivery, result, next_attempt_ms=next_attempt_ms, **given)  # type: ignore[arg-type]


def test_a_trigger_makes_one_row_a_channel_once(ledger: Ledger) -> None:
    assert ledger.accept(ledger.new(ledger.mail), ledger.new(ledger.mail, ledger.hook)) == 2
    assert ledger.accept(ledger.new(ledger.mail, ledger.hook)) == 0
    assert ledger.accept() == 0
    assert ledger.rows() == [(c, "PENDING", 0, 0, NOW_MS) for c in (ledger.mail, ledger.hook)]
    assert {row["body"] for row in ledger.world.adapter.rows("deliveries")} == {b"body"}


def test_positions_move_with_the_rows_or_neither_does(ledger: Ledger) -> None:
    ledger.store.positions(TRIGGERS, 1)
    with pytest.raises(PositionsMovedError):
        ledger.store.accept(Moves(TRIGGERS, {0: (1, 2)}), [ledger.new(ledger.mail)], NOW_MS)
    assert ledger.rows() == []
    assert ledger.accept(ledger.new(ledger.mail)) == 1
    assert ledger.store.positions(TRIGGERS, 1) == {0: 1}


def test_nothing_crosses_owners(ledger: Ledger) -> None:
    bob = ledger.world.add_owner("bob")
    row = ledger.world.adapter.api.transact(lambda t: t.channels.insert(bob, "email", "bob@example.org", None, 20))
    foreign = row["channel_id"]
    strange = [
        ledger.new(ledger.mail, owner_id=bob), ledger.new(foreign), ledger.new(foreign, owner_id=bob),
        ledger.new(ledger.mail, trigger_id="trg_9_9"), ledger.new(99),
    ]  # fmt: skip
    assert ledger.accept(*strange) == 0
    assert ledger.accept(*strange, ledger.new(ledger.mail), *strange) == 1
    assert [row[0] for row in ledger.rows()] == [ledger.mail]


def test_a_disabled_channels_row_is_dead_from_the_start(ledger: Ledger) -> None:
    ledger.world.adapter.api.transact(lambda t: t.channels.disable(ledger.world.owner_id, ledger.hook))
    ledger.accept(ledger.new(ledger.mail, ledger.hook))
    assert [row[:2] for row in ledger.rows()] == [(ledger.mail, "PENDING"), (ledger.hook, "DEAD")]
    assert ledger.world.row("deliveries", channel_id=ledger.hook)["last_error"] == "the channel is disabled"
    assert [d.channel_id for d in ledger.store.claim(10, NOW_MS, LEASE_MS)] == [ledger.mail]


def test_a_claim_is_under_a_token_and_a_lease(ledger: Ledger) -> None:
    ledger.accept(ledger.new(ledger.hook))
    assert ledger.store.claim(10, NOW_MS - 1, LEASE_MS) == []
    (delivery,) = ledger.store.claim(10, NOW_MS, LEASE_MS)
    assert delivery == Delivery(
        ledger.trigger_id, ledger.hook, ledger.world.owner_id, "webhook", "https://x.example/", b"sealed", b"body", 1, 1
    )
    assert ledger.rows() == [(ledger.hook, "SENDING", 1, 1, NOW_MS + LEASE_MS)]
    assert ledger.store.claim(10, NOW_MS + LEASE_MS - 1, LEASE_MS) == []
    (again,) = ledger.store.claim(10, NOW_MS + LEASE_MS, LEASE_MS)
    assert (again.attempts, again.token, again.delivery_id) == (2, 2, delivery.delivery_id)
    assert ledger.store.settle([settled(delivery, Result.DELIVERED)], 1) == 0
    assert ledger.store.settle([settled(again, Result.DELIVERED)], NOW_MS + 3) == 1
    assert ledger.world.row("deliveries", status="DELIVERED")["delivered_at"] == NOW_MS + 3
    assert ledger.store.settle([settled(again, Result.DEAD)], 1) == 0
    assert ledger.store.claim(10, NOW_MS * 2, LEASE_MS) == []


def test_claims_are_bounded_and_take_what_has_waited_longest(ledger: Ledger) -> None:
    ledger.accept(ledger.new(ledger.mail, ledger.hook))
    first, second = ledger.store.claim(10, NOW_MS, LEASE_MS)
    later = {first.channel_id: NOW_MS + 20, second.channel_id: NOW_MS + 10}
    results = [settled(d, Result.RETRY, later[d.channel_id], reason="busy") for d in (first, second)]
    assert ledger.store.settle(results, 1) == 2
    assert ledger.world.row("deliveries", channel_id=first.channel_id)["last_error"] == "busy"
    assert [d.channel_id for d in ledger.store.claim(1, NOW_MS + 50, LEASE_MS)] == [second.channel_id]
    assert [d.channel_id for d in ledger.store.claim(1, NOW_MS + 50, LEASE_MS)] == [first.channel_id]


def test_a_channel_that_is_gone_is_disabled_with_its_result(ledger: Ledger) -> None:
    ledger.accept(ledger.new(ledger.mail, ledger.hook))
    mail, hook = sorted(ledger.store.claim(10, NOW_MS, LEASE_MS), key=lambda d: d.channel_id)
    given = [settled(hook, Result.DEAD, reason="HTTP 410", disable_channel=True), settled(mail, Result.RETRY, NOW_MS)]
    assert ledger.store.settle(given, NOW_MS) == 2
    assert ledger.world.row("channels", channel_id=ledger.hook)["disabled_at"] == "set"
    assert ledger.world.row("deliveries", channel_id=ledger.hook)["status"] == "DEAD"
    ledger.world.adapter.api.transact(lambda t: t.channels.disable(ledger.world.owner_id, ledger.mail))
    (again,) = ledger.store.claim(10, NOW_MS, LEASE_MS)
    assert (again.channel_id, again.disabled, again.secret) == (ledger.mail, True, None)


def test_a_late_result_disables_its_channel_all_the_same(ledger: Ledger) -> None:
    ledger.accept(ledger.new(ledger.hook))
    (slow,) = ledger.store.claim(10, NOW_MS, LEASE_MS)
    ledger.store.claim(10, NOW_MS + LEASE_MS, LEASE_MS)
    assert ledger.store.settle([settled(slow, Result.DEAD, disable_channel=True)], NOW_MS) == 0
    assert ledger.world.row("channels", channel_id=ledger.hook)["disabled_at"] == "set"


def test_deliveries_are_shown_to_their_owner(ledger: Ledger) -> None:
    world = ledger.world
    (alert_id,) = [row["alert_id"] for row in world.adapter.rows("triggers")]
    show = lambda owner_id: world.adapter.api.transact(lambda t: t.alerts.deliveries(owner_id, alert_id))  # noqa: E731
    assert show(world.owner_id) == []
    ledger.accept(ledger.new(ledger.mail, ledger.hook))
    ledger.store.claim(10, NOW_MS, LEASE_MS)
    mail, hook = show(world.owner_id)
    assert (mail["kind"], mail["address"], mail["status"]) == ("email", "ann@example.org", "SENDING")
    assert (hook["channel_id"], hook["attempts"], hook["delivered_at"]) == (ledger.hook, 1, None)
    assert hook["next_attempt_at"].timestamp() * 1000 == NOW_MS + LEASE_MS
    assert show(world.add_owner("bob")) == []
