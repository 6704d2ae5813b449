"""The ledger of deliveries, on real Postgres: leases, tokens, retries, kills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from psycopg import OperationalError

from contracts.trigger import TriggerMessage
from finalizer.channels.mail import MailChannel
from finalizer.channels.outcome import Delivery, Outcome, Result, dead, delivered, retry
from finalizer.failpoints import Failpoint, survive
from finalizer.notifier import CLOSE_RESTS_SECONDS, LEASE_MS, Notifier
from finalizer.ports import Settled
from finalizer.retry_schedule import DEFAULT_RETRY_SECONDS, rest_seconds
from finalizer.trigger_relay import TriggerRelay
from ports.memory_log import MemoryLog
from sql.connection import Pool
from sql.delivery_store import PostgresDeliveryStore
from sql.relay_store import PostgresTriggerRelayStore
from tests.finalizer.settable_clock import DieAt, DiedError, SettableClock
from tests.finalizer.test_relays import add_trigger
from tests.finalizer.world import DEAD_LETTERS, TRIGGERS, World


class AtOnce(Executor):
    """Runs a call when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Scripted:
    """A channel that answers from a list, then delivers; keeps what it was given."""

    def __init__(self, answers: Sequence[Outcome | Exception] = ()) -> None:
        self.answers = list(answers)
        self.sent: list[Delivery] = []

    def send(self, delivery: Delivery) -> Outcome:
        self.sent.append(delivery)
        answer = self.answers.pop(0) if self.answers else delivered()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def make_notifier(world: World, log: MemoryLog, clock: SettableClock) -> Callable[..., Notifier]:
    def make(fail: Failpoint = survive, **channels: Any) -> Notifier:
        return Notifier(
            PostgresDeliveryStore(world.pool), log.reader(), log.writer(), clock,
            channels=channels, executor=AtOnce(), random=lambda: 0.0, triggers=TRIGGERS, dead_letters=DEAD_LETTERS,
            fail=fail,
        )  # fmt: skip

    return make


def drain(service: Any) -> None:
    while service.step():
        pass


def fire(world: World, log: MemoryLog, channel_ids: list[int], count: int = 1) -> list[str]:
    found = [add_trigger(world, alert_id, channel_ids) for alert_id in world.add_alerts(count)]
    drain(
        TriggerRelay(PostgresTriggerRelayStore(world.pool), log.writer(), triggers=TRIGGERS, dead_letters=DEAD_LETTERS)
    )
    return found


def ledger(world: World) -> list[tuple[str, int, str | None]]:
    rows = world.rows("SELECT status, attempts, last_error FROM deliveries ORDER BY trigger_id, channel_id")
    return [(row["status"], row["attempts"], row["last_error"]) for row in rows]


def test_one_channel_fails_and_the_other_is_not_repeated(
    world: World, log: MemoryLog, clock: SettableClock, make_notifier: Callable[..., Notifier]
) -> None:
    mail, hook = Scripted(), Scripted([retry("HTTP 500")] * 3)
    ids = [world.add_channel(), world.add_channel("webhook", "https://x.example/")]
    fire(world, log, ids)
    notifier = make_notifier(email=mail, webhook=hook)
    drain(notifier)
    assert ledger(world) == [("DELIVERED", 1, None), ("PENDING", 1, "HTTP 500")]
    for rest in DEFAULT_RETRY_SECONDS[:3]:
        clock.now_ms += round(rest * 1000) - 1
        drain(notifier)
        before = len(hook.sent)
        clock.now_ms += 200
        drain(notifier)
        assert len(hook.sent) == before + 1
    assert (len(mail.sent), len(hook.sent)) == (1, 4)
    assert ledger(world) == [("DELIVERED", 1, None), ("DELIVERED", 4, None)]
    assert len({(sent.delivery_id, sent.body) for sent in hook.sent}) == 1


def test_the_receivers_wish_is_never_undercut_and_the_schedule_ends() -> None:
    assert rest_seconds(1, 7.0, (2.0, 3.0), lambda: 0.0) == 7.0
    assert rest_seconds(2, None, (2.0, 3.0), lambda: 0.5) == pytest.approx(3.3)
    assert rest_seconds(3, 7.0, (2.0, 3.0), lambda: 0.0) is None


def test_a_used_up_schedule_is_a_visible_end(
    world: World, log: MemoryLog, clock: SettableClock, make_notifier: Callable[..., Notifier]
) -> None:
    tries = len(DEFAULT_RETRY_SECONDS) + 1
    fire(world, log, [world.add_channel()])
    notifier = make_notifier(email=Scripted([retry("busy")] * tries))
    for _ in range(tries + 2):
        drain(notifier)
        clock.now_ms += 40_000_000
    assert ledger(world) == [("DEAD", tries, f"given up after {tries} tries: busy")]


def test_failures_that_are_for_good(
    world: World, log: MemoryLog, clock: SettableClock, make_notifier: Callable[..., Notifier]
) -> None:
    ids = [world.add_channel(), world.add_channel("webhook", "https://x.example/")]
    fire(world, log, ids)
    notifier = make_notifier(email=MailChannel(None), webhook=Scripted([dead("HTTP 410", disable_channel=True)]))
    drain(notifier)
    (mail, hook) = ledger(world)
    assert mail[0] == "DEAD"
    assert str(mail[2]).startswith("not configured")
    assert hook == ("DEAD", 1, "HTTP 410")
    assert world.value("SELECT disabled_at IS NOT NULL FROM channels WHERE channel_id = %s", ids[1])
    fire(world, log, [ids[1]])
    drain(notifier)
    assert ledger(world)[-1] == ("DEAD", 0, "the channel is disabled")


def test_a_channel_that_raises_is_tried_again(
    world: World, log: MemoryLog, clock: SettableClock, make_notifier: Callable[..., Notifier]
) -> None:
    fire(world, log, [world.add_channel()])
    drain(make_notifier(email=Scripted([ZeroDivisionError()])))
    assert ledger(world) == [("PENDING", 1, "internal: ZeroDivisionError")]


class AwayStore(PostgresDeliveryStore):
    """Loses its connection at some settles."""

    def __init__(self, pool: Pool, times: int) -> None:
        super().__init__(pool)
        self.times = times

    def settle(self, settled: Sequence[Settled], now_ms: int) -> int:
        self.times -= 1
        if self.times >= 0:
            raise OperationalError("the connection is lost")
        return super().settle(settled, now_ms)


@pytest.mark.parametrize(("times", "status"), [(1 + len(CLOSE_RESTS_SECONDS), "DELIVERED"), (99, "SENDING")])
def test_a_stop_tries_again_to_record_what_was_sent(
    times: int, status: str, world: World, log: MemoryLog, clock: SettableClock
) -> None:
    fire(world, log, [world.add_channel()])
    rests: list[float] = []
    notifier = Notifier(
        AwayStore(world.pool, times), log.reader(), log.writer(), clock, channels={"email": Scripted()},
        executor=AtOnce(), random=lambda: 0.0, triggers=TRIGGERS, dead_letters=DEAD_LETTERS, pause=rests.append,
    )  # fmt: skip
    with pytest.raises(OperationalError):
        drain(notifier)
    notifier.close()
    assert [row[0] for row in ledger(world)] == [status]
    assert rests == list(CLOSE_RESTS_SECONDS)


@pytest.mark.parametrize("point", ["accepted", "claimed", "sent"])
def test_a_killed_notifier_loses_nothing(
    point: str, world: World, log: MemoryLog, clock: SettableClock, make_notifier: Callable[..., Notifier]
) -> None:
    fire(world, log, [world.add_channel()], count=5)
    first, second = Scripted(), Scripted()
    with pytest.raises(DiedError):
        drain(make_notifier(DieAt(point), email=first))
    drain(make_notifier(email=second))
    clock.now_ms += LEASE_MS + 200
    drain(make_notifier(email=second))
    assert {row[0] for row in ledger(world)} == {"DELIVERED"}
    sent = [delivery.delivery_id for delivery in first.sent + second.sent]
    assert len(set(sent)) == 5
    assert len(sent) == (10 if point == "sent" else 5)  # a repeat only where the outcome was unknown


def test_a_late_result_under_an_old_token_changes_nothing(world: World, log: MemoryLog, clock: SettableClock) -> None:
    fire(world, log, [world.add_channel()])
    store = PostgresDeliveryStore(world.pool)
    notifier = Notifier(
        store, log.reader(), log.writer(), clock, channels={}, executor=AtOnce(), random=lambda: 0.0, triggers=TRIGGERS,
        dead_letters=DEAD_LETTERS, fail=DieAt("accepted"),
    )  # fmt: skip
    with pytest.raises(DiedError):
        notifier.step()
    (slow,) = store.claim(10, clock.now_ms, 30_000)
    assert store.claim(10, clock.now_ms + 29_999, 30_000) == []
    (quick,) = store.claim(10, clock.now_ms + 30_000, 30_000)
    assert (quick.delivery_id, quick.body, quick.attempts) == (slow.delivery_id, slow.body, slow.attempts + 1)
    assert store.settle([Settled(slow, Result.DEAD, "late", 0, False)], 1) == 0
    assert store.settle([Settled(quick, Result.DELIVERED, "", 0, False)], 1) == 1
    assert ledger(world) == [("DELIVERED", 2, None)]


def test_the_topic_replayed_and_poisoned_makes_no_new_row(
    world: World, log: MemoryLog, clock: SettableClock, make_notifier: Callable[..., Notifier]
) -> None:
    mail = Scripted()
    (trigger_id,) = fire(world, log, [world.add_channel()])
    (record,) = log.records(TRIGGERS)
    message = TriggerMessage.model_validate_json(record.value)
    other = world.value("INSERT INTO owners (name) VALUES ('bob') RETURNING owner_id")
    foreign = message.model_copy(update={"owner_id": other})
    unknown = message.model_copy(update={"trigger_id": "trg_9_9"})
    timeless = message.evidence.model_copy(update={"finalized_at_ms": 10**18})
    poison: list[dict[str, Any]] = [
        {"trigger_id": "nul\0"}, {"owner_id": 1 << 63}, {"channel_ids": [1 << 63]}, {"evidence": timeless},
    ]  # fmt: skip
    writer = log.writer()
    for value in [
        record.value,
        record.value,
        b"{",
        foreign.model_dump_json().encode(),
        unknown.model_dump_json().encode(),
        *(message.model_copy(update=wrong).model_dump_json().encode() for wrong in poison),
    ]:
        writer.append(TRIGGERS, record.key, value, 1)
    writer.flush()
    drain(make_notifier(email=mail))
    assert [sent.trigger_id for sent in mail.sent] == [trigger_id]
    assert len(log.records(DEAD_LETTERS)) == 1 + len(poison)
