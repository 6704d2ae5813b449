"""Listing, cancelling, pausing, idempotency and quota under concurrency; who may see what."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

Headers = dict[str, str]
ROUTES = (("GET", ""), ("DELETE", ""), ("GET", "/deliveries"), ("POST", "/pause"), ("POST", "/resume"))


def create(api: httpx.Client, headers: Headers, body: dict[str, Any], **more: str) -> httpx.Response:
    return api.post("/v1/alerts", json=body, headers={**headers, **more})


# --- idempotency


def test_equal_posts_in_parallel_make_one_alert(api, ada, gain, sql) -> None:
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: create(api, ada, gain, **{"Idempotency-Key": "k 1"}), range(20)))
    assert [a.status_code for a in answers] == [201] * 20
    assert len({a.content for a in answers}) == 1
    assert sum(a.headers.get("idempotency-replayed") == "true" for a in answers) == 19
    assert sql("SELECT count(*) AS n, sum(live_alerts) AS live FROM alerts, owners") == [{"n": 1, "live": 1}]
    assert sql("SELECT count(*) AS n FROM rule_commands") == [{"n": 1}]


def test_a_key_replays_the_first_answer_whatever_has_happened(api, ada, gain, sql) -> None:
    first = create(api, ada, gain, **{"Idempotency-Key": "k"})
    sql("UPDATE alerts SET status = 'ACTIVE', active_from_event_time_ms = 5")
    again = create(api, ada, {**dict(reversed(gain.items())), "user_id": 7}, **{"Idempotency-Key": "k"})
    assert (again.status_code, again.content) == (201, first.content)


def test_a_key_belongs_to_one_request_and_one_owner(api, ada, bob, gain) -> None:
    first = create(api, ada, gain, **{"Idempotency-Key": "k"}).json()
    other = create(api, ada, {**gain, "threshold_bps": 600}, **{"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-key-reused")
    bobs = create(api, bob, gain, **{"Idempotency-Key": "k"})
    assert (bobs.status_code, bobs.json()["alert_id"] != first["alert_id"]) == (201, True)


def test_a_failed_create_leaves_the_key_usable(api, ada, gain, reference) -> None:
    assert create(api, ada, {**gain, "symbol": "NEW"}, **{"Idempotency-Key": "k"}).status_code == 422
    reference.add_instrument("NEW", "stocks", 2)
    answer = create(api, ada, {**gain, "symbol": "NEW"}, **{"Idempotency-Key": "k"})
    assert (answer.status_code, "idempotency-replayed" in answer.headers) == (201, False)


# --- quota


def test_the_quota_is_exact_under_parallel_creates(api, make_headers, gain, sql) -> None:
    eve = make_headers("eve", quota=5)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: create(api, eve, gain), range(20)))
    assert sorted(a.status_code for a in answers) == [201] * 5 + [403] * 15
    assert {a.json()["type"] for a in answers if a.status_code == 403} == {"/problems/quota-exceeded"}
    assert sql("SELECT count(*) AS n FROM alerts") == [{"n": 5}]
    made = next(a.json()["alert_id"] for a in answers if a.status_code == 201)
    assert api.delete(f"/v1/alerts/{made}", headers=eve).status_code == 200
    assert create(api, eve, gain).status_code == 201
    assert create(api, eve, gain).status_code == 403


# --- tenants


def test_foreign_unknown_and_impossible_ids_are_the_same_404(api, ada, bob, gain) -> None:
    made = create(api, ada, {**gain, "user_id": 2, "owner_id": 2}).json()["alert_id"]
    answers = []
    for alert_id in (made, 10**15, 2**63, -1, 0, "x", "%00", "1;drop table alerts", "１"):
        for method, path in (
            ("GET", ""),
            ("DELETE", ""),
            ("GET", "/deliveries"),
            ("POST", "/pause"),
            ("POST", "/resume"),
        ):
            answers.append(api.request(method, f"/v1/alerts/{alert_id}{path}", headers=bob))
    assert {(a.status_code, a.content) for a in answers} == {(404, answers[0].content)}
    assert api.get("/v1/alerts", headers=bob).json() == {"alerts": [], "next_cursor": None}
    assert api.get(f"/v1/alerts/{made}", headers=ada).json()["status"] == "PENDING"


def test_a_channel_of_another_owner_is_none(api, ada, bob, gain) -> None:
    channel = api.post("/v1/channels", json={"kind": "email", "address": "bob@example.org"}, headers=bob).json()
    assert create(api, ada, {**gain, "channels": [channel["channel_id"]]}).status_code == 422
    assert api.delete(f"/v1/channels/{channel['channel_id']}", headers=ada).status_code == 404
    assert len(api.get("/v1/channels", headers=bob).json()["channels"]) == 1


# --- pages


def read_pages(api: httpx.Client, headers: Headers, between=lambda page: None, **query: Any) -> list[int]:
    found, cursor, page = [], {}, 0
    while True:
        answer = api.get("/v1/alerts", params={"limit": 4, **query, **cursor}, headers=headers)
        assert answer.status_code == 200
        found += [alert["alert_id"] for alert in answer.json()["alerts"]]
        if answer.json()["next_cursor"] is None:
            return found
        cursor, page = {"cursor": answer.json()["next_cursor"]}, page + 1
        between(page)


@pytest.mark.parametrize("query", [{}, {"status": "PENDING"}, {"symbol": "aapl"}])
def test_pages_are_stable_while_alerts_come_and_end(api, ada, bob, gain, sql, query: dict[str, str]) -> None:
    made = [create(api, ada, gain).json()["alert_id"] for _ in range(15)]
    sql("UPDATE alerts SET inserted_at = now()")
    create(api, bob, gain)

    def disturb(page: int) -> None:
        if page == 1:
            assert api.delete(f"/v1/alerts/{made[3]}", headers=ada).status_code == 200
            create(api, ada, gain)

    untouched = [i for i in reversed(made) if i != made[3]]
    found = read_pages(api, ada, disturb, **query)
    assert [i for i in found if i != made[3]] == untouched


def test_a_cursor_is_good_for_its_listing_alone(api, ada, gain) -> None:
    for _ in range(3):
        create(api, ada, gain)
    cursor = api.get("/v1/alerts", params={"limit": 1}, headers=ada).json()["next_cursor"]
    for query in (
        {"cursor": cursor, "status": "PENDING"},
        {"cursor": cursor[:-1]},
        {"cursor": "A" * 20},
        {"cursor": "'"},
    ):
        answer = api.get("/v1/alerts", params=query, headers=ada)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "query.cursor")


def test_what_is_past_its_time_is_not_shown_as_active(api, ada, gain, sql, clock) -> None:
    made = create(api, ada, {**gain, "expires_at": "2026-03-01T13:00:00Z"}).json()["alert_id"]
    sql("UPDATE alerts SET status = 'ACTIVE', active_from_event_time_ms = created_at_ms")

    def listed(status: str) -> list[int]:
        return [a["alert_id"] for a in api.get("/v1/alerts", params={"status": status}, headers=ada).json()["alerts"]]

    assert (listed("ACTIVE"), listed("EXPIRING")) == ([made], [])
    clock.now_ms += 3_600_000
    assert (listed("ACTIVE"), listed("EXPIRING")) == ([], [made])
    assert api.get(f"/v1/alerts/{made}", headers=ada).json()["status"] == "EXPIRING"
    assert api.delete(f"/v1/alerts/{made}", headers=ada).json()["status"] == "CANCELLED"


# --- ends


def test_cancelling_is_idempotent_and_counted_once(api, ada, gain, sql) -> None:
    made = create(api, ada, gain).json()["alert_id"]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api.delete(f"/v1/alerts/{made}", headers=ada), range(8)))
    assert {a.status_code for a in answers} == {200}
    assert len({a.content for a in answers}) == 1
    assert answers[0].json()["status"] == "CANCELLED"
    assert sql("SELECT action, version FROM rule_commands ORDER BY command_id") == [
        {"action": "create", "version": 1},
        {"action": "remove", "version": 1},
    ]
    assert sql("SELECT live_alerts FROM owners WHERE name = 'ada'") == [{"live_alerts": 0}]


EVIDENCE = (
    '{"event_time_ms": 1772371800000, "sequence": 7, "session": 1, "price": "94.98", "window": "1d", "fired": "DOWN",'
    ' "reference_time_ms": 1772285400000, "reference_price": "100", "previous_bps": -480, "current_bps": -502,'
    ' "epoch": 1, "position": 9, "version": 1, "active_from_event_time_ms": 1, "finalized_at_ms": 1772371801000}'
)
TRIGGER = (
    "WITH fired AS (UPDATE alerts SET status = 'TRIGGERED', trigger = %s WHERE alert_id = %s AND status IN ('ACTIVE',"
    " 'PENDING') RETURNING *), freed AS (UPDATE owners o SET live_alerts = live_alerts - 1 FROM fired f"
    " WHERE o.owner_id = f.owner_id) INSERT INTO triggers (trigger_id, alert_id, owner_id, payload)"
    " SELECT 'trg_' || alert_id, alert_id, owner_id, '{}' FROM fired RETURNING alert_id"
)


def test_of_cancel_and_trigger_one_wins_and_both_deletes_agree(api, ada, gain, sql) -> None:
    made = [create(api, ada, gain).json()["alert_id"] for _ in range(40)]

    def delete(alert_id: int) -> str:
        status: str = api.delete(f"/v1/alerts/{alert_id}", headers=ada).json()["status"]
        return status

    with ThreadPoolExecutor(6) as pool:
        first = [pool.submit(delete, i) for i in made]
        second = [pool.submit(delete, i) for i in reversed(made)]
        for alert_id in made:
            sql(TRIGGER, EVIDENCE, alert_id)
    ends = {row["alert_id"]: row["status"] for row in sql("SELECT alert_id, status FROM alerts")}
    assert [f.result() for f in first] == [ends[i] for i in made]
    assert [f.result() for f in second] == [ends[i] for i in reversed(made)]
    triggered = {row["alert_id"] for row in sql("SELECT alert_id FROM triggers")}
    assert triggered == {i for i, status in ends.items() if status == "TRIGGERED"}
    assert set(ends.values()) <= {"TRIGGERED", "CANCELLED"}
    assert sql("SELECT live_alerts FROM owners WHERE name = 'ada'") == [{"live_alerts": 0}]


def test_a_trigger_is_told_in_words_with_its_deliveries(api, ada, gain, sql) -> None:
    channel = api.post("/v1/channels", json={"kind": "email", "address": "ada@example.org"}, headers=ada).json()
    made = create(api, ada, {**gain, "direction": "DOWN", "window": "1d"}).json()["alert_id"]
    sql(TRIGGER, EVIDENCE, made)
    sql(
        "INSERT INTO deliveries"
        " (trigger_id, channel_id, owner_id, status, attempts, delivered_at, body, next_attempt_at) "
        "SELECT trigger_id, %s, owner_id, 'DELIVERED', 2, to_timestamp(0), '', now() FROM triggers",
        channel["channel_id"],
    )
    alert = api.get(f"/v1/alerts/{made}", headers=ada).json()
    assert alert["trigger"]["summary"] == (
        "AAPL fell 5.02% in 1 day: 100 at 2026-02-28T13:30:00.000Z → 94.98 at 2026-03-01T13:30:00.000Z"
    )
    assert (alert["trigger"]["current_bps"], alert["trigger"]["sequence"]) == (-502, 7)
    (delivery,) = api.get(f"/v1/alerts/{made}/deliveries", headers=ada).json()["deliveries"]
    assert (delivery["address"], delivery["status"], delivery["attempts"]) == ("ada@example.org", "DELIVERED", 2)
    assert (delivery["delivered_at"], delivery["next_attempt_at"]) == ("1970-01-01T00:00:00.000Z", None)


def test_pause_and_resume_are_a_new_activation(api, ada, gain, sql) -> None:
    made = create(api, ada, gain).json()["alert_id"]
    early = api.post(f"/v1/alerts/{made}/pause", headers=ada)
    assert (early.status_code, early.json()["type"]) == (409, "/problems/conflict")
    sql("UPDATE alerts SET status = 'ACTIVE', active_from_event_time_ms = 5, active_epoch = 1, active_position = 1")
    assert api.post(f"/v1/alerts/{made}/pause", headers=ada).json()["status"] == "PAUSED"
    resumed = api.post(f"/v1/alerts/{made}/resume", headers=ada).json()
    assert (resumed["status"], resumed["version"], resumed["active_from"]) == ("PENDING", 2, None)
    assert [tuple(r.values()) for r in sql("SELECT action, version FROM rule_commands ORDER BY command_id")] == [
        ("create", 1), ("remove", 1), ("create", 2),
    ]  # fmt: skip
    assert sql("SELECT live_alerts FROM owners WHERE name = 'ada'") == [{"live_alerts": 1}]


# --- waiting


def test_waiting_ends_with_the_activation(api, ada, gain, sql) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.post, "/v1/alerts", params={"wait": 30}, json=gain, headers=ada)
        while not sql("UPDATE alerts SET status = 'ACTIVE', active_from_event_time_ms = 5 RETURNING 1"):
            assert not waiting.done()
        assert (waiting.result().status_code, waiting.result().json()["status"]) == (201, "ACTIVE")


def test_waiting_has_an_end(api, ada, gain) -> None:
    assert api.post("/v1/alerts", params={"wait": "0.05"}, json=gain, headers=ada).json()["status"] == "PENDING"
    for wait in ("61", "-1", "nan", "inf", "x"):
        assert api.post("/v1/alerts", params={"wait": wait}, json=gain, headers=ada).status_code == 422
