"""20 000 races of cancel, trigger, expire and pause on real Postgres; a million by `./alerts bench races`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.races import fits, race
from sql.bench_store import RacedAlert
from sql.migrate import migrate

RACES = 20_000


def test_every_race_has_one_winner_and_everybody_hears_the_same(postgres_server: str, postgres_schema: str) -> None:
    migrate(postgres_server, postgres_schema)
    report = race(postgres_server, postgres_schema, RACES, 7)
    assert (report.wrong, report.first_wrong) == (0, [])
    assert report.races == sum(report.winners.values()) == RACES
    assert report.places_left == 0
    assert set(report.winners) == {"TRIGGERED", "CANCELLED", "EXPIRED"}
    assert min(report.paused, *report.winners.values()) > RACES / 100  # nobody stood aside


ENDED = RacedAlert(1, 1, "s", "price", "TRIGGERED", 1, 1)
TOLD = {"TRIGGERED": 1, "CANCELLED": 0, "PAUSED": 0}


@pytest.mark.parametrize(
    ("alert", "told"),
    [
        (replace(ENDED, outbox=0), TOLD),
        (replace(ENDED, outbox=2), TOLD),
        (replace(ENDED, status="ACTIVE"), TOLD),
        (replace(ENDED, status="EXPIRED"), TOLD),
        (replace(ENDED, removes=2), TOLD),
        (replace(ENDED, removes=0), TOLD),
        (ENDED, {**TOLD, "TRIGGERED": 2}),
        (ENDED, {**TOLD, "CANCELLED": 1}),
        (replace(ENDED, removes=2), {**TOLD, "PAUSED": 1}),
    ],
)
def test_the_judgement_can_fail(alert: RacedAlert, told: dict[str, int]) -> None:
    assert fits(ENDED, TOLD)
    assert not fits(alert, told)
