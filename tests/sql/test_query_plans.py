"""Hot queries keep their index: by name, on tables large enough for the planner to want it."""

from __future__ import annotations

import pytest

from sql import delivery_store, feed_store, finalizer_store, relay_store
from sql.connection import Pool
from tests.finalizer.world import SHARD, World

CASES = [
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
]  # fmt: skip


@pytest.fixture
def filled(pool: Pool) -> Pool:
    """5 000 alerts, most of them over and their commands published."""
    world = World(pool)
    world.add_alerts(5_000)
    world.rows("UPDATE alerts SET status = 'CANCELLED' WHERE alert_id % 10 > 0")
    world.rows("UPDATE rule_commands SET published_at = now(), epoch = 1, number = command_id WHERE alert_id % 10 > 0")
    with pool.connection() as connection:
        connection.execute("ANALYZE")
    return pool


def test_hot_queries_use_their_index(filled: Pool) -> None:
    for query, index, parameters in CASES:
        with filled.connection() as connection:
            connection.execute("SET LOCAL enable_seqscan = off")
            rows = connection.execute(f"EXPLAIN {query.sql}", parameters).fetchall()
        plan = "\n".join(row["QUERY PLAN"] for row in rows)
        assert index in plan, f"{query.__name__}:\n{plan}"


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
