"""What is over leaves the tables, what is under way stays, and nothing is lost between archive and commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from finalizer.consumer import Consumer
from finalizer.retention import DAY_MS, PAGE_REST_MS, PASS_REST_MS, Retention
from finalizer.retention_archive import RetentionArchive
from ports.memory_log import MemoryLog
from sql.retention_store import PostgresRetentionStore
from tests.finalizer.settable_clock import DieAt, DiedError, SettableClock
from tests.finalizer.world import SHARD, START_MS, TOPIC, World, activation, candidate, frame

DAYS = 30


@pytest.fixture
def ended(world: World, log: MemoryLog, clock: SettableClock, make_consumer: Callable[..., Consumer]) -> dict[str, int]:
    """An alert of each kind of end, long ago, all published and delivered; and one that is ACTIVE."""
    triggered, cancelled, active = world.add_alerts(3)
    entries = [activation(alert_id, place) for place, alert_id in enumerate((triggered, active), 1)]
    entries.append(candidate(triggered, 3, at_ms=START_MS + 5))
    writer = log.writer()
    writer.append(TOPIC, SHARD.encode(), frame(entries).SerializeToString(), 0)
    writer.flush()
    consumer = make_consumer()
    while consumer.step():
        pass
    world.cancel(cancelled)
    world.rows("UPDATE alerts SET ended_at = now() WHERE ended_at IS NOT NULL")
    channel = world.add_channel()
    world.rows("UPDATE triggers SET published_at = now()")
    world.rows("UPDATE rule_commands SET published_at = now(), epoch = 1, number = command_id")
    world.rows(
        "INSERT INTO deliveries (trigger_id, channel_id, owner_id, status, body, next_attempt_at)"
        " SELECT trigger_id, %s, owner_id, 'DELIVERED', 'x', now() FROM triggers",
        channel,
    )
    for key, alert_id in (("a", triggered), ("b", active)):
        world.rows(
            "INSERT INTO idempotency_keys (owner_id, key, request_hash, alert_id) VALUES (%s, %s, '', %s)",
            world.owner_id, key, alert_id,
        )  # fmt: skip
    clock.now_ms = int(world.value("SELECT extract(epoch FROM now()) * 1000")) + (DAYS + 1) * DAY_MS
    return {"triggered": triggered, "cancelled": cancelled, "active": active}


def retention(
    world: World,
    clock: SettableClock,
    keep: Callable[[Sequence[Any]], None] = lambda _: None,
    *,
    alert_days: float | None = DAYS,
    command_days: float | None = None,
    fail: Callable[[str], None] = lambda _: None,
) -> Retention:
    store = PostgresRetentionStore(world.pool)
    return Retention(store, clock, alert_days=alert_days, command_days=command_days, keep=keep, fail=fail)


def left(world: World) -> set[int]:
    return {row["alert_id"] for row in world.rows("SELECT alert_id FROM alerts")}


def read(folder: Path) -> list[Any]:
    files = sorted(folder.glob("*.jsonl.zst"))
    return [orjson.loads(line) for f in files for line in zstandard.decompress(f.read_bytes()).splitlines()]


def test_ended_alerts_go_into_the_archive_with_all_that_is_theirs(
    world: World, clock: SettableClock, ended: dict[str, int], tmp_path: Path
) -> None:
    service = retention(world, clock, RetentionArchive(tmp_path).keep)
    service.step()
    assert left(world) == {ended["active"]}
    assert world.value("SELECT count(*) FROM triggers") == world.value("SELECT count(*) FROM deliveries") == 0
    assert [row["key"] for row in world.rows("SELECT key FROM idempotency_keys")] == ["b"]
    triggered, cancelled = read(tmp_path)
    assert triggered["alert"]["alert_id"] == ended["triggered"]
    assert triggered["alert"]["trigger"]["current_bps"] == 500
    assert triggered["trigger"]["trigger_id"].startswith("trg_")
    assert [d["status"] for d in triggered["deliveries"]] == ["DELIVERED"]
    assert (cancelled["alert"]["status"], cancelled["trigger"], cancelled["deliveries"]) == ("CANCELLED", None, [])
    assert service.detail() == {"alerts_dropped": 2, "commands_dropped": 0, "retention_failures": 0}


@pytest.mark.parametrize(
    "under_way",
    [
        "UPDATE triggers SET published_at = NULL",
        "UPDATE deliveries SET status = 'PENDING'",
        "UPDATE deliveries SET status = 'SENDING'",
        "UPDATE rule_commands SET published_at = NULL WHERE action = 'remove'",
        "UPDATE alerts SET ended_at = ended_at + interval '2 days'",
    ],
)
def test_what_is_under_way_stays(world: World, clock: SettableClock, ended: dict[str, int], under_way: str) -> None:
    world.rows(under_way)
    retention(world, clock).step()
    assert ended["triggered"] in left(world)


def test_a_row_that_somebody_holds_is_left_for_the_next_pass(
    world: World, clock: SettableClock, ended: dict[str, int]
) -> None:
    service = retention(world, clock)
    with world.pool.connection() as other:
        other.execute("SELECT 1 FROM alerts WHERE alert_id = %s FOR UPDATE", (ended["triggered"],))
        service.step()
        assert left(world) == {ended["triggered"], ended["active"]}
    clock.now_ms += PAGE_REST_MS
    service.step()  # the pass ends here
    service.step()
    assert ended["triggered"] in left(world), "the next pass waits"
    clock.now_ms += PASS_REST_MS
    service.step()
    assert left(world) == {ended["active"]}


def test_who_dies_behind_the_archive_writes_it_again_and_loses_nothing(
    world: World, clock: SettableClock, ended: dict[str, int], tmp_path: Path
) -> None:
    keep = RetentionArchive(tmp_path).keep
    with pytest.raises(DiedError):
        retention(world, clock, keep, fail=DieAt("alerts: kept, before commit")).step()
    assert left(world) == set(ended.values())
    retention(world, clock, keep).step()
    assert left(world) == {ended["active"]}
    numbers = [row["alert"]["alert_id"] for row in read(tmp_path)]
    assert sorted(numbers) == sorted([ended["triggered"], ended["cancelled"]] * 2)


def test_a_full_disk_drops_nothing_and_stops_nobody(world: World, clock: SettableClock, ended: dict[str, int]) -> None:
    def full(_: Sequence[Any]) -> None:
        raise OSError(28, "No space left on device")

    service = retention(world, clock, full)
    service.step()
    service.step()
    assert left(world) == set(ended.values())
    assert service.detail()["retention_failures"] == 1, "it is tried again later, not at once"


def test_published_commands_go_and_waiting_ones_stay(world: World, clock: SettableClock, ended: dict[str, int]) -> None:
    world.rows("UPDATE rule_commands SET published_at = NULL WHERE alert_id = %s", ended["active"])
    service = retention(world, clock, alert_days=None, command_days=7)
    service.step()
    assert {row[0] for row in world.commands()} == {ended["active"]}
    assert left(world) == set(ended.values()), "for ever"
    assert service.detail()["commands_dropped"] == 4


def test_nothing_goes_before_its_time(world: World, clock: SettableClock, ended: dict[str, int]) -> None:
    clock.now_ms -= 2 * DAY_MS
    retention(world, clock).step()
    assert left(world) == set(ended.values())
