"""GET /v1/alerts/{id}/evidence: recomputed from what is stored and from the archive; a false crossing is called so."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api.alerts.evidence_check import Prices, check, exact_change, stored_prices
from api.ports import AlertRecord
from contracts.keys import bucket_of
from contracts.trigger import Evidence
from contracts.vocabulary import Status
from feeds.archive.file_name import ArchiveFile, bucket_folder, day_of
from feeds.archive.parquet_file import make_table, write_table
from flink_jobs.domain.rolling_changes import _exact_floors

HOUR_MS = 3_600_000
NOW_MS = 1_772_371_800_000
CHANGE = AlertRecord(
    1, 1, "AAPL", "change", "1h", "UP", 500, 2, "", [], NOW_MS - 9, NOW_MS + 9, 0, Status.TRIGGERED, "TRIGGERED", 1,
    NOW_MS - 9, datetime(2026, 3, 1, tzinfo=UTC), None,
)  # fmt: skip
LEVEL = replace(CHANGE, kind="price", window=None, direction="ABOVE", threshold=10_000)
ROSE: dict[str, Any] = {
    "event_time_ms": NOW_MS, "sequence": 7, "session": 1, "price": "105.02", "window": "1h", "fired": "UP",
    "reference_time_ms": NOW_MS - HOUR_MS, "reference_price": "100", "previous_bps": 480, "current_bps": 502,
    "epoch": 1, "position": 9, "version": 1, "active_from_event_time_ms": NOW_MS - 9, "finalized_at_ms": NOW_MS + 400,
}  # fmt: skip
PASSED = {
    **{k: v for k, v in ROSE.items() if not k.startswith("reference") and not k.endswith("bps")},
    "fired": "ABOVE", "previous_price": "99.99", "previous_event_time_ms": NOW_MS - 5, "window": None,
}  # fmt: skip
FELL = {"fired": "DOWN", "price": "95", "current_bps": -500, "previous_bps": -499}


def judge(alert: AlertRecord, said: dict[str, Any], splits: list[tuple[int, int, int]] | None = None) -> Any:
    evidence = Evidence.model_validate(said)
    return check(alert, evidence, stored_prices(alert, evidence), splits or [])


@pytest.mark.parametrize(
    ("alert", "wrong", "holds"),
    [
        (CHANGE, {}, True),
        (replace(CHANGE, direction="EITHER"), {}, True),
        (CHANGE, {"price": "105", "current_bps": 500}, True),  # the threshold itself
        (CHANGE, {"price": "104.99", "current_bps": 499}, False),  # not reached
        (CHANGE, {"price": "105.03"}, False),  # not what the evidence says
        (CHANGE, {"previous_bps": 500}, False),  # reached before
        (CHANGE, {"reference_time_ms": NOW_MS - HOUR_MS + 1}, False),  # too young
        (CHANGE, {"event_time_ms": NOW_MS + 9}, False),  # at its end
        (CHANGE, {"active_from_event_time_ms": NOW_MS + 1}, False),
        (replace(CHANGE, direction="DOWN"), {}, False),
        (replace(CHANGE, direction="DOWN"), FELL, True),
        (replace(CHANGE, direction="EITHER"), FELL, True),
        (replace(CHANGE, direction="DOWN"), {**FELL, "previous_bps": -500}, None),  # -5 % exactly, or a little less
        (replace(CHANGE, direction="DOWN"), {**FELL, "previous_bps": -501}, False),
    ],
)
def test_a_change_is_recomputed(alert: AlertRecord, wrong: dict[str, Any], holds: bool | None) -> None:
    verdict = judge(alert, {**ROSE, **wrong})
    assert verdict.holds is holds
    assert (verdict.why == []) is (holds is True)


@pytest.mark.parametrize(
    ("alert", "wrong", "holds"),
    [
        (LEVEL, {}, True),
        (LEVEL, {"price": "100"}, True),
        (LEVEL, {"price": "99.99"}, False),
        (LEVEL, {"previous_price": "100"}, False),
        (replace(LEVEL, direction="BELOW"), {"fired": "BELOW", "price": "100", "previous_price": "100.01"}, True),
        (replace(LEVEL, direction="BELOW"), {"fired": "BELOW", "price": "100.01", "previous_price": "101"}, False),
        (replace(LEVEL, direction="BELOW"), {"fired": "BELOW", "price": "99", "previous_price": "100"}, False),
    ],
)
def test_a_level_is_recomputed(alert: AlertRecord, wrong: dict[str, Any], holds: bool) -> None:
    assert judge(alert, {**PASSED, **wrong}).holds is holds


def test_prices_of_two_bases_are_compared_exactly() -> None:
    """Three new shares for one between reference and price: 35.01 is 105.03."""
    split = [(NOW_MS - 1, 3, 1)]
    assert judge(CHANGE, {**ROSE, "price": "35.01", "current_bps": 503}, split).change == Fraction(503, 10_000)
    assert judge(CHANGE, {**ROSE, "price": "35.01", "current_bps": 503}, split).holds
    level = {**PASSED, "price": "33.34"}  # the target of before the split is 33.33 and a third
    assert judge(LEVEL, level, split).holds
    assert not judge(LEVEL, {**level, "price": "33.33"}, split).holds
    assert not judge(replace(LEVEL, series_version=1), level, split).holds  # its owner was shown the new basis


def test_drawn_changes_have_the_floors_that_the_rolling_job_computes() -> None:
    draw = random.Random(5)
    for _ in range(2_000):
        prices = Prices(draw.randrange(1, 1 << 47), draw.randrange(1, 1 << 47))
        splits = [(NOW_MS - draw.randrange(2 * HOUR_MS), draw.randrange(1, 9), draw.randrange(1, 9)) for _ in range(3)]
        splits = sorted({s[0]: s for s in splits}.values())
        change = exact_change(Evidence.model_validate(ROSE), prices, splits)
        floors = _exact_floors(
            prices.price, NOW_MS, prices.before, NOW_MS - HOUR_MS, {at: (new, old) for at, new, old in splits}
        )
        assert (change * 10_000 // 1, -change * 10_000 // 1) == floors


FIRE = """WITH fired AS (UPDATE alerts SET status = 'TRIGGERED', trigger = %s WHERE alert_id = %s RETURNING *)
INSERT INTO triggers (trigger_id, alert_id, owner_id, payload, published_at)
SELECT 'trg_' || alert_id, alert_id, owner_id, '{}', to_timestamp(%s / 1000.0) FROM fired"""


def archive(folder: Path, rows: list[tuple[int, int]]) -> None:
    """AAPL's (event time, scaled price), as the archive writer would leave them."""
    times, prices = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    ones = np.ones(len(rows), np.int64)
    place = bucket_folder(folder, "stocks", bucket_of("AAPL", 4))
    place.mkdir(parents=True, exist_ok=True)
    file = ArchiveFile(day_of(int(times.min())), day_of(int(times.max())), 0, len(rows))
    table = make_table(["AAPL"], [0 * ones, times, prices, ones, ones, np.arange(len(rows), dtype=np.int64)])
    write_table(table, place / file.name)


@pytest.fixture
def fired(api, ada, gain, sql) -> int:
    made: int = api.post("/v1/alerts", json=gain, headers=ada).json()["alert_id"]
    sql(FIRE, json.dumps({**ROSE, "active_from_event_time_ms": 1}), made, NOW_MS + 650)
    return made


def test_the_evidence_and_the_archive_agree(api, ada, bob, fired, archive_folder) -> None:
    archive(archive_folder, [(NOW_MS - HOUR_MS, 10_000), (NOW_MS - 700, 10_480), (NOW_MS, 10_502)])
    told = api.get(f"/v1/alerts/{fired}/evidence", headers=ada).json()
    assert told["stored"] == told["archive"] == {"holds": True, "why": []}
    assert told["current_change"] == "251/5000"
    assert (told["log_epoch"], told["log_position"], told["series_version"]) == (1, 9, 0)
    assert told["trigger"]["reference_price"] == "100"
    assert told["delays"] == {"event_to_commit_ms": 400, "commit_to_publish_ms": 250, "commit_to_delivery_ms": None}
    assert api.get(f"/v1/alerts/{fired}/evidence", headers=bob).status_code == 404


def test_an_archive_with_another_price_contradicts(api, ada, fired, archive_folder) -> None:
    archive(archive_folder, [(NOW_MS - HOUR_MS, 10_000), (NOW_MS, 10_499)])
    told = api.get(f"/v1/alerts/{fired}/evidence", headers=ada).json()
    assert told["stored"]["holds"]
    assert told["archive"]["holds"] is False
    assert "The archive's price is 104.99, not 105.02." in told["archive"]["why"]


def test_an_archive_without_the_prices_decides_nothing(api, ada, fired, archive_folder) -> None:
    told = api.get(f"/v1/alerts/{fired}/evidence", headers=ada).json()
    assert told["archive"] == {"holds": None, "why": ["The price archive does not have both prices (yet)."]}


def test_an_alert_that_has_not_fired_has_no_evidence(api, ada, gain) -> None:
    made = api.post("/v1/alerts", json=gain, headers=ada).json()["alert_id"]
    answer = api.get(f"/v1/alerts/{made}/evidence", headers=ada)
    assert (answer.status_code, answer.json()["detail"]) == (409, "The alert has not triggered: it is PENDING.")
