"""Drivers of reshards and rebuilds on real Postgres, killed between any two effects; a matcher that answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from contracts.frames_pb2 import (
    CandidateEntry,
    CandidateFrame,
    Command,
    Control,
    RebuildMark,
    Routing,
    RoutingMark,
)
from contracts.keys import shard_of
from contracts.vocabulary import Status
from finalizer.domain.batch import ReceivedFrame, plan_batch
from finalizer.failpoints import Failpoint, survive
from finalizer.ports import BatchOutcome, Moves
from finalizer.rebuilder import Rebuilder
from finalizer.resharder import Resharder
from finalizer.shard_ports import Phase
from finalizer.sweeper import Sweeper
from sql.alert_store import PostgresAlertStore
from sql.finalizer_store import PostgresFinalizerStore
from sql.rebuild_store import PostgresRebuildStore
from sql.reference_store import ReferenceStore
from sql.reshard_store import PostgresReshardStore
from tests.finalizer.settable_clock import DieAt, DiedError, SettableClock
from tests.finalizer.world import END_MS, SHARD, START_MS, TOPIC, World, activation, candidate, frame, frontier

NEW = [shard_of("stocks", "AAA", 1, alert_id, 2) for alert_id in range(1, 9)]
LIVE = [Status.PENDING, Status.ACTIVE, Status.PAUSED]
SHARDS = 2


class Matchers:
    """Say what they are told of; entries of each shard are numbered from 1."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = PostgresFinalizerStore(world.pool)
        self.numbers: dict[str, int] = {}
        self.told = 0  # commands that were answered
        self.controls = 0

    def say(self, shard: str, entries: Sequence[CandidateEntry]) -> BatchOutcome:
        first = self.numbers.get(shard, 0) + 1
        self.numbers[shard] = first + len(entries) - 1
        return self.read([frame(entries, first, shard=shard)])

    def read(self, frames: Sequence[CandidateFrame]) -> BatchOutcome:
        """One batch of the consumer."""
        position = self.store.positions(TOPIC, 1)[0]
        with self.store.advance(Moves(TOPIC, {0: (position, position + 1)})) as work:
            given = [ReceivedFrame("test", frame) for frame in frames]
            return work.apply(plan_batch(given, work.progress([frame.shard for frame in frames])), 1)

    def activate(self, *alert_ids: int) -> None:
        self.say(SHARD, [activation(alert_id, alert_id) for alert_id in alert_ids])

    def answer(self) -> None:
        """Marks of every routing record and an activation of every create that is new."""
        rows = self.world.rows("SELECT payload FROM feed_controls ORDER BY control_id OFFSET %s", self.controls)
        self.controls += len(rows)
        for row in rows:
            routing = Control.FromString(bytes(row["payload"])).routing
            if routing.symbol:
                self.mark(routing)
        commands = self.world.rows(
            "SELECT command_id, shard, alert_id, version FROM rule_commands"
            " WHERE action = 'create' AND shard <> %s AND command_id > %s ORDER BY command_id",
            SHARD, self.told,
        )  # fmt: skip
        for row in commands:
            self.told = row["command_id"]
            self.say(row["shard"], [activation(row["alert_id"], 50, row["version"])])

    def mark(self, routing: Routing) -> None:
        mark = RoutingMark(symbol="AAA", version=routing.version, phase=routing.phase)
        for shard in {SHARD} if routing.phase == Routing.END else set(NEW):
            self.say(shard, [CandidateEntry(position=9, routing=mark)])


@pytest.fixture
def matchers(world: World) -> Matchers:
    return Matchers(world)


def resharder(world: World, clock: SettableClock, fail: Failpoint = survive) -> Resharder:
    return Resharder(PostgresReshardStore(world.pool), clock, fail)


def phase(world: World) -> str:
    return str(world.value("SELECT phase FROM reshards ORDER BY reshard_id DESC LIMIT 1"))


def drive(driver: Resharder, matchers: Matchers, until: str = "DONE") -> None:
    for _ in range(60):
        if phase(matchers.world) == until:
            return
        driver.step()
        if phase(matchers.world) != until:
            matchers.answer()
    raise AssertionError(f"{phase(matchers.world)}: {driver.detail()}")


POINTS = [
    *(f"{name.lower()}: {when}" for name in Phase if name is not Phase.DONE for when in ("before commit", "committed")),
    "copied", "switched",
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_dies_anywhere_is_followed_by_one_that_ends_it(
    point: str, world: World, matchers: Matchers, clock: SettableClock
) -> None:
    ids = world.add_alerts(5)
    matchers.activate(*ids)
    ReferenceStore(world.pool).set_routing("AAA", SHARDS)
    die = DieAt(point)
    driver = resharder(world, clock, die)
    with pytest.raises(DiedError):
        drive(driver, matchers)
    driver = resharder(world, clock)
    drive(driver, matchers)
    assert die.died
    assert {i: world.alert(i)["shard"] for i in ids} == {i: shard_of("stocks", "AAA", 1, i, SHARDS) for i in ids}
    assert {world.alert(i)["moving_to"] for i in ids} == {None}
    creates = [command for command in world.commands() if command[2] == "create"]
    assert len(creates) == 2 * len(ids), "one in the old shard, one in the new"
    assert world.value("SELECT switched FROM reshards") == len(ids)
    world.check_invariants()


def test_two_drivers_are_harmless(world: World, matchers: Matchers, clock: SettableClock) -> None:
    ids = world.add_alerts(3)
    matchers.activate(*ids)
    ReferenceStore(world.pool).set_routing("AAA", SHARDS)
    store = PostgresReshardStore(world.pool)
    (reshard_id,) = store.under_way()
    second = resharder(world, clock)
    with store.hold(reshard_id) as work:
        assert work is not None
        assert not second.step()
    drive(second, matchers, "COPYING")
    resharder(world, clock).step()
    drive(second, matchers)
    assert world.value("SELECT copied FROM reshards") == 3


def test_alerts_that_are_not_active_yet_are_waited_for(world: World, matchers: Matchers, clock: SettableClock) -> None:
    (late,) = world.add_alerts(1)
    ReferenceStore(world.pool).set_routing("AAA", SHARDS)
    driver = resharder(world, clock)
    drive(driver, matchers, "DRAINING")
    for _ in range(5):
        driver.step()
    assert phase(world) == "DRAINING"
    assert driver.detail()["waiting"] == {"AAA": f"alert {late} is not active in shard {SHARD} yet"}
    matchers.activate(late)
    drive(driver, matchers)
    assert world.alert(late)["status"] == "ACTIVE"


def test_claims_of_new_shards_wait_and_old_ones_decide(world: World, matchers: Matchers, clock: SettableClock) -> None:
    old_first, new_only, untouched = world.add_alerts(3)
    matchers.activate(old_first, new_only, untouched)
    ReferenceStore(world.pool).set_routing("AAA", SHARDS)
    driver = resharder(world, clock)
    drive(driver, matchers, "ENDING")
    for alert_id in (old_first, new_only):
        shard = world.alert(alert_id)["moving_to"]
        assert matchers.say(shard, [candidate(alert_id, 60, at_ms=START_MS + 9)]).triggered == []
        assert world.alert(alert_id)["status"] == "ACTIVE"
    assert list(matchers.say(SHARD, [candidate(old_first, 70, at_ms=START_MS + 7)]).triggered) == [old_first]
    matchers.answer()
    drive(driver, matchers)
    assert [world.alert(i)["status"] for i in (old_first, new_only, untouched)] == ["TRIGGERED", "TRIGGERED", "ACTIVE"]
    assert world.alert(old_first)["trigger"]["event_time_ms"] == START_MS + 7
    assert world.alert(new_only)["trigger"]["event_time_ms"] == START_MS + 9
    assert world.value("SELECT count(*) FROM parked_claims") == 0
    removes = [command[0] for command in world.commands() if command[2] == "remove"]
    assert sorted(removes) == [old_first, old_first, new_only], "from both while it moved"


def test_two_shards_claims_in_one_batch_are_both_heard(world: World, matchers: Matchers, clock: SettableClock) -> None:
    """The new shard's is of a later tick and read first: the old one's decides all the same."""
    (alert_id,) = world.add_alerts(1)
    matchers.activate(alert_id)
    ReferenceStore(world.pool).set_routing("AAA", SHARDS)
    drive(resharder(world, clock), matchers, "ENDING")
    shard = world.alert(alert_id)["moving_to"]
    later = frame([candidate(alert_id, 60, at_ms=START_MS + 9)], matchers.numbers[shard] + 1, shard=shard)
    first = frame([candidate(alert_id, 70, at_ms=START_MS + 7)], matchers.numbers[SHARD] + 1, shard=SHARD)
    assert list(matchers.read([later, first]).triggered) == [alert_id]
    assert world.alert(alert_id)["trigger"]["event_time_ms"] == START_MS + 7


def test_an_alert_on_the_way_expires_behind_both_frontiers(
    world: World, matchers: Matchers, clock: SettableClock
) -> None:
    claimed, quiet = world.add_alerts(2)
    matchers.activate(claimed, quiet)
    ReferenceStore(world.pool).set_routing("AAA", SHARDS)
    driver, sweeper = resharder(world, clock), Sweeper(PostgresFinalizerStore(world.pool), clock)
    drive(driver, matchers, "ENDING")
    matchers.say(world.alert(claimed)["moving_to"], [candidate(claimed, 60)])
    matchers.say(SHARD, [frontier(END_MS, 80)])
    sweeper.step()
    assert world.statuses() == {"ACTIVE": 2}
    assert world.value("SELECT swept_ms FROM shard_progress WHERE shard = %s", SHARD) == END_MS
    for shard in {world.alert(alert_id)["moving_to"] for alert_id in (claimed, quiet)}:
        matchers.say(shard, [frontier(END_MS, 90)])
    sweeper.step()
    assert (world.alert(claimed)["status"], world.alert(quiet)["status"]) == ("ACTIVE", "EXPIRED")
    drive(driver, matchers)
    assert world.alert(claimed)["status"] == "TRIGGERED"


def test_what_changes_its_version_on_the_way_is_the_new_shards_alone(
    world: World, matchers: Matchers, clock: SettableClock
) -> None:
    refused, paused, cancelled = world.add_alerts(3)
    matchers.activate(refused, paused, cancelled)
    ReferenceStore(world.pool).set_routing("AAA", SHARDS)
    driver = resharder(world, clock)
    drive(driver, matchers, "COPYING")
    driver.step()
    matchers.say(SHARD, [candidate(refused, 60, at_ms=START_MS - 1)])
    with world.pool.connection() as connection:
        store = PostgresAlertStore(connection)
        assert store.pause(world.owner_id, paused, LIVE)
        assert store.resume(world.owner_id, paused, [Status.PAUSED])
        assert store.cancel(world.owner_id, cancelled, LIVE)
    for alert_id in (refused, paused):
        row = world.alert(alert_id)
        wanted = shard_of("stocks", "AAA", 1, alert_id, SHARDS)
        assert (row["status"], row["version"], row["shard"], row["moving_to"]) == ("PENDING", 2, wanted, None)
    drive(driver, matchers)
    assert world.statuses() == {"ACTIVE": 2, "CANCELLED": 1}
    removes = [command[:2] for command in world.commands() if command[2] == "remove"]
    assert sorted(removes) == [(paused, 1), (paused, 1), (cancelled, 1), (cancelled, 1)]


def test_an_activation_of_an_earlier_life_acknowledges_nothing(
    world: World, matchers: Matchers, clock: SettableClock
) -> None:
    """The new shard's matcher has lost its state, and tells its whole log again under a higher epoch."""
    (alert_id,) = world.add_alerts(1)
    matchers.activate(alert_id)
    ReferenceStore(world.pool).set_routing("AAA", SHARDS)
    driver = resharder(world, clock)
    drive(driver, matchers, "COPYING")
    driver.step()
    shard = world.alert(alert_id)["moving_to"]
    matchers.read([frame([activation(alert_id, 3)], 1, 2, shard)])
    for _ in range(3):
        driver.step()
    assert (phase(world), world.alert(alert_id)["moving_epoch"]) == ("COPYING", None)


def test_a_batch_that_holds_two_lives_of_a_matcher_acknowledges_by_the_newer_one(
    world: World, matchers: Matchers, clock: SettableClock
) -> None:
    """The consumer was behind: it reads the log of the lost life and all of its repetition at once."""
    (alert_id,) = world.add_alerts(1)
    matchers.activate(alert_id)
    ReferenceStore(world.pool).set_routing("AAA", SHARDS)
    driver = resharder(world, clock)
    drive(driver, matchers, "COPYING")
    driver.step()
    shard = world.alert(alert_id)["moving_to"]
    opened, copying = (
        CandidateEntry(position=place, routing=RoutingMark(symbol="AAA", version=version, phase=which))
        for version in (world.value("SELECT version FROM reshards"),)
        for place, which in ((2, Routing.OPEN), (3, Routing.COPY))
    )
    matchers.read(
        [
            frame([activation(alert_id, 50)], matchers.numbers[shard] + 1, 1, shard),
            frame([opened, copying, activation(alert_id, 4)], 1, 2, shard),
        ]
    )
    alert = world.alert(alert_id)
    assert (alert["moving_epoch"], alert["moving_position"]) == (2, 4)


# ------------------------------------------------------------------------------ rebuilds
def commands_of(world: World) -> list[Command]:
    rows = world.rows("SELECT payload FROM rule_commands WHERE action = 'rebuild' ORDER BY command_id")
    return [Command.FromString(bytes(row["payload"])) for row in rows]


def answer_rebuild(world: World, matchers: Matchers, answered: int) -> int:
    steps = {"begin_rebuild": RebuildMark.BEGUN, "assert_rules": RebuildMark.ASSERTED, "end_rebuild": RebuildMark.ENDED}
    for command in commands_of(world)[answered:]:
        kind = command.WhichOneof("kind")
        mark = RebuildMark(rebuild_id=getattr(command, kind).rebuild_id, step=steps[kind])
        mark.known = len(command.assert_rules.rules)
        mark.missing = kind == "assert_rules"
        matchers.say(SHARD, [CandidateEntry(position=7, rebuild=mark)])
    return len(commands_of(world))


@pytest.mark.parametrize(
    "point",
    [*(f"{name}: {when}" for name in ("beginning", "asserting", "ending") for when in ("before commit", "committed")),
     "asserted", None],
)  # fmt: skip
def test_the_table_is_read_out_page_by_page_whoever_dies(
    point: str | None, world: World, matchers: Matchers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("finalizer.rebuilder.MAX_RULES_A_PAGE", 2)
    ids = world.add_alerts(7)
    matchers.activate(*ids[:4])
    world.cancel(ids[6])
    (rebuild_id,) = PostgresRebuildStore(world.pool).request(None, "AAA", repair=True)
    driver, answered = Rebuilder(PostgresRebuildStore(world.pool), DieAt(point) if point else survive), 0
    for _ in range(40):
        try:
            driver.step()
        except DiedError:
            driver = Rebuilder(PostgresRebuildStore(world.pool))
        answered = answer_rebuild(world, matchers, answered)
    (progress,) = PostgresRebuildStore(world.pool).progress([rebuild_id])
    pages = [command.assert_rules for command in commands_of(world) if command.HasField("assert_rules")]
    assert {rule.alert_id for page in pages for rule in page.rules} == set(ids[:6])
    assert (progress.phase, progress.reported, progress.missing) == ("DONE", len(pages), len(pages))
    if point is None:
        assert [len(page.rules) for page in pages] == [2, 2, 2]
        assert pages[0].active_from_ms == START_MS.to_bytes(8, "little") * 2
        assert pages[2].active_from_ms == bytes(16)


def test_a_page_leaves_out_what_others_hold_and_comes_back_to_it(world: World, matchers: Matchers) -> None:
    ids = world.add_alerts(3)
    (rebuild_id,) = PostgresRebuildStore(world.pool).request(None, "AAA", repair=True)
    driver, answered = Rebuilder(PostgresRebuildStore(world.pool)), 0
    driver.step()
    answered = answer_rebuild(world, matchers, answered)
    with world.pool.connection() as other:
        other.execute("SELECT 1 FROM alerts WHERE alert_id = %s FOR UPDATE", (ids[1],))
        for _ in range(5):
            driver.step()
        asserted = [rule.alert_id for command in commands_of(world) for rule in command.assert_rules.rules]
        assert asserted == [ids[0], ids[2]]
    for _ in range(10):
        driver.step()
        answered = answer_rebuild(world, matchers, answered)
    pages = [command.assert_rules for command in commands_of(world)]
    assert [rule.alert_id for page in pages for rule in page.rules] == [ids[0], ids[2], ids[1]]
    assert PostgresRebuildStore(world.pool).progress([rebuild_id])[0].phase == "DONE"


def test_the_log_is_never_far_ahead_of_the_matcher(
    world: World, matchers: Matchers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("finalizer.rebuilder.MAX_RULES_A_PAGE", 1)
    monkeypatch.setattr("finalizer.rebuilder.MAX_PAGES_AHEAD", 3)
    world.add_alerts(9)
    PostgresRebuildStore(world.pool).request("stocks", None, repair=False)
    driver = Rebuilder(PostgresRebuildStore(world.pool))
    driver.step()
    answer_rebuild(world, matchers, 0)
    for _ in range(9):
        driver.step()
    assert len(commands_of(world)) == 1 + 3
    assert not driver.step()


def test_commands_of_lost_shards_begin_a_new_epoch(world: World, matchers: Matchers) -> None:
    world.add_alerts(2)
    world.rows("INSERT INTO shard_relays (shard, fence, epoch, last_number) VALUES (%s, 4, 1, 90)", SHARD)
    world.rows("UPDATE rule_commands SET epoch = 1, number = 89 + command_id")
    PostgresRebuildStore(world.pool).request(None, "AAA", repair=True, state_lost=True)
    assert world.rows("SELECT fence, epoch, last_number FROM shard_relays") == [
        {"fence": 5, "epoch": 2, "last_number": 0}
    ]
    assert world.rows("SELECT DISTINCT epoch, number FROM rule_commands") == [{"epoch": None, "number": None}]
