"""Hot queries keep their index: by name, on tables large enough for the planner to want it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sql import alert_store, delivery_store, evidence_store, feed_store, finalizer_store, relay_store
from sql.connection import Pool
from tests.finalizer.world import SHARD, World

OF_OWNER = {"owner_id": 1, "alert_id": 1}
CLOCKS = {"feeds": ["stocks"], "clocks_ms": [1]}
COLUMNS = ("alert_id", "version", "epoch", "position", "event_time_ms", "sequence", "session", "price_scaled",
           "reference_time_ms", "reference_price_scaled", "previous_bps", "current_bps", "previous_price_scaled",
           "previous_event_time_ms")  # fmt: skip
CLAIMS: dict[str, Any] = {name: list(range(1, 10)) for name in COLUMNS}
CASES: list[tuple[Any, str, dict[str, Any]]] = [
    (finalizer_store.QUERIES.expire_alerts, "alerts_expiring",
     {"shard": SHARD, "frontier_ms": 0, "limit": 10, "ended_at_ms": 0}),
    (finalizer_store.QUERIES.move_sweep, "alerts_expiring", {"shard": SHARD, "frontier_ms": 0}),
    (finalizer_store.QUERIES.refuse_claims, "alerts_pkey", {"shard": [SHARD], "alert_id": [1], "version": [1]}),
    (finalizer_store.QUERIES.activate_alerts, "alerts_pkey",
     {"shard": [SHARD], "alert_id": [1], "version": [1], "active_from_ms": [1], "epoch": [1], "position": [1]}),
    (relay_store.RULES.number_commands, "rule_commands_unnumbered", {"shards": [SHARD], "limit": 10}),
    (relay_store.RULES.find_waiting_shards, "rule_commands_unpublished", {"limit": 10, "after": ""}),
    (relay_store.RULES.read_numbered, "rule_commands_unpublished", {"shards": [SHARD], "limit": 10}),
    (relay_store.TRIGGERS.hold_unpublished, "triggers_unpublished", {"limit": 10}),
    (delivery_store.QUERIES.claim_deliveries, "deliveries_due",
     {"limit": 10, "now_ms": 0, "lease_ms": 1, "crowd": 9, "owner_limit": 2}),
    (delivery_store.QUERIES.find_owners_in_turn, "deliveries_of_owner",
     {"limit": 10, "now_ms": 0, "crowd": 9, "after_owner_id": 0}),
    (delivery_store.QUERIES.claim_deliveries_of_owners, "deliveries_of_owner",
     {"limit": 10, "now_ms": 0, "lease_ms": 1, "owner_ids": [1], "owner_limit": 2}),
    (feed_store.QUERIES.read_numbered_controls, "feed_controls", {"feed": "stocks", "limit": 10}),
    (finalizer_store.QUERIES.trigger_alerts, "alerts_pkey", {**CLAIMS, "shard": [SHARD] * 9, "fired": ["UP"] * 9,
     "finalized_at_ms": 1}),
    (finalizer_store.QUERIES.lock_refused, "alerts_pkey", {"shard": [SHARD], "alert_id": [1], "version": [1]}),
    (finalizer_store.QUERIES.lock_moving, "alerts_pkey", {"alert_ids": [1, 2, 3]}),
    (finalizer_store.QUERIES.find_shards_due, "alerts_expiring", {"limit": 10}),
    (relay_store.RULES.mark_commands_published, "rule_commands_pkey", {"command_ids": [1, 2, 3]}),
    (relay_store.TRIGGERS.mark_triggers_published, "triggers_pkey", {"trigger_ids": ["trg_1", "trg_2"]}),
    (alert_store.QUERIES.find_alert, "alerts_pkey", {"owner_id": 1, "alert_id": 1, **CLOCKS}),
    (alert_store.QUERIES.list_alerts, "alerts_of_owner",
     {"owner_id": 1, "before_alert_id": 1 << 62, "status": None, "symbol": None, "limit": 50, **CLOCKS}),
    (alert_store.QUERIES.list_live_alerts, "alerts_live_of_owner",
     {"owner_id": 1, "before_alert_id": 1 << 62, "status": "ACTIVE", "symbol": None, "limit": 50, **CLOCKS}),
    (alert_store.QUERIES.cancel_alert, "alerts_pkey|alerts_live_of_owner", {**OF_OWNER, "from_statuses": ["ACTIVE"]}),
    (alert_store.QUERIES.pause_alert, "alerts_pkey|alerts_live_of_owner", {**OF_OWNER, "from_statuses": ["ACTIVE"]}),
    (alert_store.QUERIES.list_deliveries, "triggers_alert_id_key", {"owner_id": 1, "alert_id": 1, "limit": 9}),
    (evidence_store.QUERIES.find_context, "triggers_alert_id_key", OF_OWNER),
]  # fmt: skip


BIG = ("alerts", "rule_commands", "triggers", "deliveries", "feed_controls")
FILL = f"""
INSERT INTO owners (name) SELECT 'owner-' || n FROM generate_series(1, 200) n;
INSERT INTO channels (owner_id, kind, address) SELECT owner_id, 'email', 'a@example.org' FROM owners;
INSERT INTO alerts (owner_id, symbol, shard, kind, rate_window, direction, threshold, decimals, created_at_ms,
                    expires_at_ms, status, active_from_event_time_ms, ended_at, trigger)
SELECT 1 + n % 200, 'AAA', CASE n / 10 % 16 WHEN 0 THEN '{SHARD}' ELSE 'shard-' || n / 10 % 16 END,
       'change', '1h', 'UP', 500, 2, 1, 1000 + n,
       CASE WHEN n % 10 = 0 THEN 'ACTIVE' WHEN n % 10 = 1 THEN 'TRIGGERED' ELSE 'CANCELLED' END, 1,
       CASE WHEN n % 10 > 0 THEN now() END, CASE WHEN n % 10 = 1 THEN jsonb_build_object() END
  FROM generate_series(1, 60000) n;
INSERT INTO rule_commands (shard, alert_id, version, action, epoch, number, published_at)
SELECT shard, alert_id, 1, 'create', CASE WHEN alert_id % 100 < 98 THEN 1 END,
       CASE WHEN alert_id % 100 < 98 THEN alert_id END, CASE WHEN alert_id % 100 < 95 THEN now() END FROM alerts;
INSERT INTO triggers (trigger_id, alert_id, owner_id, payload, published_at)
SELECT 'trg_' || alert_id, alert_id, owner_id, jsonb_build_object(), CASE WHEN alert_id % 500 > 1 THEN now() END
  FROM alerts WHERE status = 'TRIGGERED';
INSERT INTO deliveries (trigger_id, channel_id, owner_id, status, body, next_attempt_at)
SELECT trigger_id, c.channel_id, t.owner_id, CASE WHEN alert_id % 500 > 1 THEN 'DELIVERED' ELSE 'PENDING' END, '', now()
  FROM triggers t JOIN channels c USING (owner_id);
INSERT INTO feed_controls (feed, payload, control_number, published_at)
SELECT 'stocks', '', n, CASE WHEN n < 9900 THEN now() END FROM generate_series(1, 10000) n;
ANALYZE
"""


@pytest.fixture
def filled(pool: Pool) -> Pool:
    """60 000 alerts of 200 owners, a tenth of them live, nearly all of their commands and triggers published."""
    World(pool)
    with pool.connection() as connection:
        connection.execute(FILL)
    return pool


def test_hot_queries_use_their_index(filled: Pool) -> None:
    """As the planner chooses with the shipped settings: it reads none of the tables that grow."""
    for query, index, parameters in CASES:
        with filled.connection() as connection:
            rows = connection.execute(f"EXPLAIN {query.sql}", parameters).fetchall()
        plan = "\n".join(row["QUERY PLAN"] for row in rows)
        assert re.search(index, plan), f"{query.__name__}:\n{plan}"
        scanned = [table for table in BIG if f"Seq Scan on {table} " in plan]
        assert scanned == [], f"{query.__name__}:\n{plan}"


@pytest.mark.parametrize("claims", [10, 500, 2_000, 5_000])
def test_stale_statistics_do_not_make_claims_quadratic(claims: int, pool: Pool) -> None:
    """Analysed while every alert was PENDING; a plan that begins with "the one ACTIVE row" compares all with all."""
    world = World(pool)
    ids = world.add_alerts(20_000)[:claims]
    with pool.connection() as connection:
        connection.execute("ANALYZE")
    columns = ["version", "epoch", "position", "event_time_ms", "sequence", "session", "price_scaled",
               "reference_time_ms", "reference_price_scaled", "previous_bps", "current_bps", "previous_price_scaled",
               "previous_event_time_ms"]  # fmt: skip
    parameters = {
        **{name: [1] * claims for name in columns},
        "alert_id": ids, "shard": [SHARD] * claims, "fired": ["UP"] * claims, "finalized_at_ms": 1,
    }  # fmt: skip
    with pool.connection() as connection:
        rows = connection.execute(f"EXPLAIN {finalizer_store.QUERIES.trigger_alerts.sql}", parameters).fetchall()
    plan = "\n".join(row["QUERY PLAN"] for row in rows)
    assert "alerts_pkey" in plan or "Hash Join" in plan, plan
    assert "alerts_expiring" not in plan, plan
    assert "alerts_live_of_owner" not in plan, plan
