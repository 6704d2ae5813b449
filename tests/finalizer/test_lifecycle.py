"""The table against the docs, the schema, and what the SQL really does from every status."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contracts.vocabulary import Status
from finalizer.domain.batch import Activated, BatchPlan, Claim
from finalizer.domain.lifecycle import LIVE, TERMINAL, TRANSITIONS, Event, may, page, sources
from finalizer.ports import Moves
from sql.finalizer_store import PostgresFinalizerStore
from tests.finalizer.world import END_MS, SHARD, START_MS, TOPIC, World, candidate

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_from_the_table() -> None:
    assert (ROOT / "docs" / "lifecycle.md").read_text() == page()


def test_nothing_leaves_a_terminal_status() -> None:
    assert {Status.TRIGGERED, Status.CANCELLED, Status.EXPIRED} == TERMINAL
    assert all(may(status, event) is None for status in TERMINAL for event in Event)
    assert all(sources(event) for event in Event)
    reached = {Status.PENDING}
    while more := {after for (before, _), after in TRANSITIONS.items() if before in reached} - reached:
        reached |= more
    assert reached == set(Status)


def test_the_schema_lists_the_same_statuses(world: World) -> None:
    check = world.value(
        "SELECT string_agg(pg_get_constraintdef(oid), ' ') FROM pg_constraint "
        "WHERE conrelid = 'alerts'::regclass AND conname = 'alerts_status_check'"
    )
    assert set(re.findall(r"'([A-Z]+)'", check)) == set(Status)
    for index in ("alerts_expiring", "alerts_live_of_owner"):
        predicate = world.value(
            "SELECT pg_get_expr(indpred, indrelid) FROM pg_index WHERE indexrelid = %s::regclass", index
        )
        assert set(re.findall(r"'([A-Z]+)'", predicate)) == LIVE


@pytest.mark.parametrize("status", list(Status))
def test_the_sql_moves_exactly_as_the_table_says(status: Status, world: World) -> None:
    store = PostgresFinalizerStore(world.pool)
    events = [Event.ACTIVATE, Event.TRIGGER, Event.REFUSE, Event.EXPIRE, Event.CANCEL]
    for event, alert_id in zip(events, world.add_alerts(len(events)), strict=True):
        world.rows(
            """UPDATE alerts SET status = %s, active_from_event_time_ms = %s,
               trigger = CASE WHEN %s = 'TRIGGERED' THEN '{}'::jsonb END WHERE alert_id = %s""",
            status, START_MS, status, alert_id,
        )  # fmt: skip
        plan = BatchPlan()
        if event is Event.ACTIVATE:
            plan.activations = [Activated(SHARD, alert_id, 1, START_MS, 1, 1)]
        elif event in (Event.TRIGGER, Event.REFUSE):
            at_ms = START_MS if event is Event.TRIGGER else END_MS
            plan.claims = [Claim(SHARD, 1, 1, candidate(alert_id, 1, at_ms=at_ms).candidate)]
        if event is Event.EXPIRE:
            world.rows("UPDATE alerts SET expires_at_ms = %s WHERE alert_id = %s", START_MS + 1, alert_id)
            store.expire(SHARD, START_MS + 1, 10, 1)
        elif event is Event.CANCEL:
            world.cancel(alert_id)
        else:
            position = store.positions(TOPIC, 1)[0]
            with store.advance(Moves(TOPIC, {0: (position, position + 1)})) as work:
                work.apply(plan, 1)
        assert world.alert(alert_id)["status"] == (may(status, event) or status), event
