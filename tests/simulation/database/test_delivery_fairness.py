"""Claims of deliveries are shared among owners, over both adapters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

import simulation.database.delivery_store
import sql.delivery_store
from finalizer.channels.outcome import Delivery, Result
from finalizer.owner_turns import MAX_SENDS_AN_OWNER, OwnerTurns
from finalizer.ports import Moves, NewDelivery, Settled
from tests.simulation.database.world import TRIGGERS, World

NOW_MS, LEASE_MS = 5_000_000, 30_000


class Owners:
    """Some owners with a channel each."""

    def __init__(self, world: World, count: int) -> None:
        self.world, self.store = world, world.adapter.deliveries()
        self.ids = [world.owner_id, *(world.add_owner(f"owner {number}") for number in range(1, count))]
        self.channels = {
            owner_id: world.adapter.api.transact(
                lambda t, o=owner_id: t.channels.insert(o, "email", "a@example.org", None, 20)
            )["channel_id"]
            for owner_id in self.ids
        }

    def owe(self, due: Sequence[tuple[int, int]]) -> None:
        """(place of the owner, since when it is due), one delivery each."""
        alerts = [self.world.create_active(owner_id=self.ids[place])[0] for place, _ in due]
        self.world.trigger(*alerts)
        with self.world.adapter.trigger_relay().unpublished(1_000) as work:
            ids = {trigger.payload["alert_id"]: trigger.trigger_id for trigger in work.triggers}
            work.mark_published()
        for alert_id, (place, since_ms) in zip(alerts, due, strict=True):
            owner_id = self.ids[place]
            new = NewDelivery(ids[alert_id], owner_id, [self.channels[owner_id]], b"body")
            position = self.store.positions(TRIGGERS, 1)[0]
            assert self.store.accept(Moves(TRIGGERS, {0: (position, position + 1)}), [new], since_ms) == 1

    def claim(self, limit: int, owner_limit: int, now_ms: int = NOW_MS) -> list[int]:
        """Places of the owners whose rows were claimed, sorted."""
        self.claimed = self.store.claim(limit, now_ms, LEASE_MS, owner_limit)
        return self.places(self.claimed)

    def places(self, claimed: Sequence[Delivery]) -> list[int]:
        return sorted(self.ids.index(delivery.owner_id) for delivery in claimed)


@pytest.fixture
def in_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    for store in (sql.delivery_store, simulation.database.delivery_store):
        monkeypatch.setattr(store, "CROWD_ROWS", 6)


def test_who_has_much_to_send_does_not_hold_up_who_has_little(world: World) -> None:
    owners = Owners(world, 3)
    owners.owe([*((0, NOW_MS - 90 + row) for row in range(9)), (1, NOW_MS - 2), (1, NOW_MS - 1), (2, NOW_MS)])
    assert owners.claim(4, 5) == [0, 0, 1, 2]  # the owners' first rows, then the oldest of the second ones
    assert owners.claim(20, 5) == [0, 0, 0, 1]
    assert owners.claim(20, 5) == []  # owner 0 has its bound, though rows are due
    again = owners.claim(20, 5, NOW_MS + LEASE_MS)  # the leases are over: nobody is busy
    assert again == [0, 0, 0, 0, 0, 1, 1, 2]


def test_a_settled_row_makes_room_for_its_owner(world: World) -> None:
    owners = Owners(world, 1)
    owners.owe([(0, NOW_MS)] * 4)
    assert owners.claim(9, 2) == [0, 0]
    done = [Settled(owners.claimed[0], Result.DELIVERED, "", 0, False)]
    assert owners.store.settle(done, NOW_MS) == 1
    assert owners.claim(9, 2) == [0]


def test_the_bound_is_the_products_when_none_is_given(world: World) -> None:
    owners = Owners(world, 1)
    owners.owe([(0, NOW_MS)] * (MAX_SENDS_AN_OWNER + 2))
    assert len(owners.store.claim(64, NOW_MS, LEASE_MS)) == MAX_SENDS_AN_OWNER


@pytest.mark.usefixtures("in_a_crowd")
def test_in_a_crowd_owners_take_turns(world: World) -> None:
    """The six oldest rows are one owner's."""
    owners = Owners(world, 4)
    owners.owe([*((0, NOW_MS - 90) for _ in range(8)), (1, NOW_MS), (2, NOW_MS + 500), (3, NOW_MS), (3, NOW_MS)])
    found: Counter[int] = Counter()
    for _ in range(3):
        found.update(owners.claim(2, 2))  # the rest of an owner's waits for its next turn
    assert found == {0: 2, 1: 1, 3: 2}  # what owner 2 owes is not due
    done = [Settled(delivery, Result.DELIVERED, "", 0, False) for delivery in owners.claimed]
    owners.store.settle(done, NOW_MS)
    assert owners.claim(9, 3) == [0]
    assert owners.claim(9, 3) == []  # still a crowd, and its owner has its bound


def test_turns_go_round_and_on_from_where_the_limit_cut() -> None:
    turns, known = OwnerTurns(), [3, 5, 8, 9]

    def find(after: int, limit: int) -> list[int]:
        return [owner for owner in known if owner > after][:limit]

    assert turns.next_owners(find) == [3, 5, 8, 9]
    turns.go_on([3, 5, 8, 9], [3, 5, 3], full=True)
    assert turns.next_owners(find) == [8, 9, 3, 5]
    turns.go_on([8, 9, 3, 5], [3, 9], full=True)
    assert turns.next_owners(find) == [5, 8, 9, 3]
    turns.go_on([5, 8, 9, 3], [], full=False)
    assert turns.next_owners(find) == [5, 8, 9, 3]
