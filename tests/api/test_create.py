"""POST /v1/alerts: what becomes of a request, exactly."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.keys import bucket_shard, hot_shard, shard_of

NOON = "2026-03-01T12:00:00.000Z"


def test_a_change_alert_is_pending_with_its_command(api, ada, gain, sql) -> None:
    answer = api.post("/v1/alerts", json={**gain, "note": "to the moon"}, headers=ada)
    assert answer.status_code == 201
    alert = answer.json()
    assert answer.headers["location"] == f"/v1/alerts/{alert['alert_id']}"
    assert {k: alert[k] for k in ("symbol", "kind", "window", "direction", "threshold_bps", "threshold_percent")} == {
        "symbol": "AAPL", "kind": "change", "window": "1h", "direction": "UP", "threshold_bps": 500,
        "threshold_percent": "5",
    }  # fmt: skip
    assert (alert["status"], alert["version"], alert["created_at"]) == ("PENDING", 1, NOON)
    assert alert["expires_at"] == "2026-03-31T12:00:00.000Z"
    assert sql("SELECT shard, alert_id, version, action, number FROM rule_commands") == [
        {
            "shard": shard_of("stocks", "AAPL", 4, alert["alert_id"], 1),
            "alert_id": alert["alert_id"], "version": 1, "action": "create", "number": None,
        }
    ]  # fmt: skip
    assert sql("SELECT live_alerts FROM owners WHERE name = 'ada'") == [{"live_alerts": 1}]
    assert api.get(answer.headers["location"], headers=ada).json() == alert


def test_a_hot_symbol_gets_one_of_its_own_shards(api, ada, gain, sql) -> None:
    sql("UPDATE instruments SET shards = 4 WHERE symbol = 'AAPL'")
    ids = [api.post("/v1/alerts", json=gain, headers=ada).json()["alert_id"] for _ in range(8)]
    stored = {row["alert_id"]: row["shard"] for row in sql("SELECT alert_id, shard FROM alerts")}
    assert stored == {i: shard_of("stocks", "AAPL", 4, i, 4) for i in ids}
    assert len(set(stored.values())) > 1


@pytest.mark.parametrize(
    ("percent", "bps"),
    [("5", 500), ("2.25", 225), ("0.01", 1), ("5.10", 510), ("100000", 10_000_000), ("7.00000", 700)],
)
def test_a_percentage_is_exact(api, ada, gain, percent: str, bps: int) -> None:
    del gain["threshold_bps"]
    answer = api.post("/v1/alerts", json={**gain, "threshold_percent": percent}, headers=ada)
    assert (answer.status_code, answer.json()["threshold_bps"]) == (201, bps)


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold_bps": 0},
        {"threshold_bps": -500},
        {"threshold_bps": 10_000_001},
        {"threshold_bps": 5.5},
        {"threshold_bps": "500"},
        {"threshold_bps": True},
        {"threshold_bps": None},
        {"threshold_percent": "5"},
        {"threshold_bps": None, "threshold_percent": "5.001"},
        {"threshold_bps": None, "threshold_percent": "0"},
        {"threshold_bps": None, "threshold_percent": "-5"},
        {"threshold_bps": None, "threshold_percent": "5e2"},
        {"threshold_bps": None, "threshold_percent": 5},
        {"threshold_bps": 10_000, "direction": "DOWN"},
        {"direction": "ABOVE"},
        {"direction": "up"},
        {"window": "2h"},
        {"kind": "volume"},
        {"symbol": "NOPE"},
        {"symbol": ""},
        {"symbol": "A" * 65},
        {"note": "x" * 5_001},
        {"channels": [1]},
        {"channels": ["1"]},
        {"channels": list(range(1, 22))},
    ],
)
def test_what_is_wrong_is_named_and_leaves_nothing(api, ada, gain, sql, wrong: dict[str, Any]) -> None:
    answer = api.post("/v1/alerts", json={**gain, **wrong}, headers=ada)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["type"], problem["status"]) == ("/problems/invalid", 422)
    assert problem["errors"]
    assert all(error["field"].startswith("body") for error in problem["errors"])
    assert sql("SELECT 1 FROM alerts") == []
    assert sql("SELECT live_alerts FROM owners WHERE name = 'ada'") == [{"live_alerts": 0}]


# --- scale of prices


@pytest.mark.parametrize(
    ("symbol", "target", "scaled"),
    [
        ("BTC", "700000.00", 70_000_000_000_000),
        ("BTC", "0.00000001", 1),
        ("AAPL", "105.1000", 10_510),
        ("AAPL", "105", 10_500),
    ],
)
def test_a_target_is_exact(api, admin, sql, symbol: str, target: str, scaled: int) -> None:
    body = {"kind": "price", "symbol": symbol, "direction": "ABOVE", "target": target, "created_at": NOON}
    answer = api.post("/v1/alerts", json=body, headers=admin)
    assert answer.status_code == 201
    assert sql("SELECT threshold FROM alerts") == [{"threshold": scaled}]
    assert float(answer.json()["target"]) == float(target)
    assert "e" not in answer.json()["target"].lower()


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("0.00000000172", "8 decimals"),
        ("0", "greater than zero"),
        ("0.000", "greater than zero"),
        ("2814750", "below 2814749.76710656"),
        ("-5", "plain decimal"),
        ("1e5", "plain decimal"),
        ("70,000", "plain decimal"),
        (" 5", "plain decimal"),
        ("٥", "plain decimal"),
        ("NaN", "plain decimal"),
    ],
)
def test_a_target_that_is_not_exact_is_refused_in_words(api, admin, target: str, says: str) -> None:
    body = {"kind": "price", "symbol": "BTC", "direction": "BELOW", "target": target, "created_at": NOON}
    answer = api.post("/v1/alerts", json=body, headers=admin)
    assert answer.status_code == 422
    assert says in answer.json()["detail"]
    assert answer.json()["errors"][0]["field"] == "body.target"


def test_a_target_is_text_not_a_number(api, ada) -> None:
    body = {"kind": "price", "symbol": "AAPL", "direction": "BELOW", "target": 100.5}
    assert api.post("/v1/alerts", json=body, headers=ada).status_code == 422


# --- spelling of symbols


@pytest.mark.parametrize("spelling", ["BRK.B", "BRK-B", "brk.b", " brk-b\t", "Brk/B"])
def test_spellings_of_a_symbol_meet(api, ada, gain, spelling: str) -> None:
    answer = api.post("/v1/alerts", json={**gain, "symbol": spelling}, headers=ada)
    assert (answer.status_code, answer.json()["symbol"]) == (201, "BRK.B")
    listed = api.get("/v1/alerts", params={"symbol": spelling}, headers=ada).json()["alerts"]
    assert [alert["symbol"] for alert in listed] == ["BRK.B"]


def test_an_exact_symbol_wins_over_another_spelling(api, ada, gain, reference) -> None:
    reference.add_instrument("VOD-L", "stocks", 2)
    symbols = [
        api.post("/v1/alerts", json={**gain, "symbol": s}, headers=ada).json()["symbol"] for s in ("vod.l", "vod-l")
    ]
    assert symbols == ["VOD.L", "VOD-L"]


# --- times


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2026-03-29T02:30:00+01:00", "2026-03-29T01:30:00.000Z"),
        ("2026-03-02T00:00:00.1239Z", "2026-03-02T00:00:00.123Z"),
        ("2026-03-01T21:00:01+09:00", "2026-03-01T12:00:01.000Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
    ],
)
def test_times_are_stored_as_utc(api, ada, gain, text: str, stored: str) -> None:
    answer = api.post("/v1/alerts", json={**gain, "expires_at": text}, headers=ada)
    assert (answer.status_code, answer.json()["expires_at"]) == (201, stored)


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-29T02:30:00", "2026-03-29", "tomorrow", "2026-02-30T00:00:00Z", "2026-03-01T12:00:00Z",
        "2020-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-12:00", 1_800_000_000, "",
    ],
)  # fmt: skip
def test_times_without_offset_or_in_the_past_are_refused(api, ada, gain, text: object) -> None:
    answer = api.post("/v1/alerts", json={**gain, "expires_at": text}, headers=ada)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].endswith("expires_at")


def test_the_default_lifetime_is_exact_over_a_clock_change(api, ada, gain, sql, clock, monkeypatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    clock.now_ms = 1_774_500_000_000  # three days before the clocks go forward there
    api.post("/v1/alerts", json=gain, headers=ada)
    assert sql("SELECT expires_at_ms - created_at_ms AS lifetime_ms FROM alerts") == [{"lifetime_ms": 2_592_000_000}]


# --- the market clock


def _finalized(sql, shard: str, frontier_ms: int) -> None:
    sql("INSERT INTO shard_progress (shard, frontier_ms) VALUES (%s, %s)", shard, frontier_ms)


def test_a_live_feed_has_the_wall_clock_kept_near_its_frontier(api, ada, gain, sql, clock) -> None:
    def created_at() -> str:
        return api.post("/v1/alerts", json=gain, headers=ada).json()["created_at"]

    frontier_ms = clock.now_ms
    _finalized(sql, "stocks/0~1", frontier_ms)
    _finalized(sql, "stocks/1~1", frontier_ms + 5_000)
    _finalized(sql, "stocks/2~1", 0)  # no frontier yet
    _finalized(sql, "coins/0~1", 5)  # another feed's
    clock.now_ms = frontier_ms + 2_000
    assert created_at() == "2026-03-01T12:00:02.000Z"
    clock.now_ms = frontier_ms - 86_400_000
    assert created_at() == "2026-03-01T12:00:00.000Z"
    clock.now_ms = frontier_ms + 86_400_000
    assert created_at() == "2026-03-01T12:05:00.000Z"


def test_a_replay_has_its_frontier_as_clock(api, ada, admin, sql) -> None:
    body = {"kind": "price", "symbol": "BTC", "direction": "ABOVE", "target": "7"}
    early = api.post("/v1/alerts", json=body, headers=ada)
    assert (early.status_code, early.json()["errors"][0]["field"]) == (422, "body.created_at")
    given = api.post("/v1/alerts", json={**body, "created_at": "2013-01-01T00:00:00Z"}, headers=admin)
    assert (given.status_code, given.json()["created_at"]) == (201, "2013-01-01T00:00:00.000Z")
    _finalized(sql, "coins/0~1", 1_357_000_000_000)
    _finalized(sql, "coins/1~1", 1_356_000_000_000)
    assert api.post("/v1/alerts", json=body, headers=ada).json()["created_at"] == "2012-12-20T10:40:00.000Z"


def test_shards_that_a_hot_symbol_has_left_do_not_hold_the_clock(api, ada, admin, gain, sql) -> None:
    """Nothing moves their frontier any more."""
    for feed in ("stocks", "coins"):
        _finalized(sql, bucket_shard(feed, 0), 1_772_366_400_000)
        _finalized(sql, hot_shard(feed, "600519", 4, 2), 1_577_836_800_000)
    assert api.post("/v1/alerts", json=gain, headers=ada).json()["created_at"] == NOON
    btc = {"kind": "price", "symbol": "BTC", "direction": "ABOVE", "target": "1"}
    alert = api.post("/v1/alerts", json=btc, headers=ada).json()
    assert alert["created_at"] == NOON
    assert api.get(f"/v1/alerts/{alert['alert_id']}", headers=ada).json()["status"] == "PENDING"
    assert {feed["frontier"] for feed in api.get("/v1/status", headers=ada).json()["feeds"]} == {NOON}


def test_only_an_admin_says_when_an_alert_was_created(api, ada, gain) -> None:
    answer = api.post("/v1/alerts", json={**gain, "created_at": NOON}, headers=ada)
    assert (answer.status_code, answer.json()["type"]) == (403, "/problems/forbidden")


def test_a_target_belongs_to_the_series_of_its_creation(api, admin, gain, reference) -> None:
    reference.add_split("AAPL", 1_400_000_000_000, 7, 1)
    reference.add_split("AAPL", 1_600_000_000_000, 4, 1)
    times = ("2013-01-01T00:00:00Z", "2014-05-13T16:53:20Z", "2021-01-01T00:00:00Z")
    made = [api.post("/v1/alerts", json={**gain, "created_at": t}, headers=admin).json() for t in times]
    assert [alert["series_version"] for alert in made] == [0, 1, 2]
