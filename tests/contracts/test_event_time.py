"""Event times: the same milliseconds as the oracle's, or a named refusal."""

from __future__ import annotations

import importlib.util
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.event_time import EventTimeError, parse_event_time


def load_oracle() -> Any:
    path = Path(__file__).parents[1] / "scenarios" / "oracle.py"
    spec = importlib.util.spec_from_file_location("oracle_of_event_times", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


ORACLE = load_oracle()
ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(moment=st.datetimes(datetime(1970, 1, 3), datetime(9999, 12, 29), timezones=ZONES))  # noqa: DTZ001
def test_texts_are_read_as_the_oracle_reads_them(moment: datetime) -> None:
    text = moment.isoformat()
    assert parse_event_time(text) == ORACLE.millis(text)
    plain = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    assert parse_event_time(plain) == ORACLE.millis(plain)


@pytest.mark.parametrize(
    "value", [None, True, 1.5, "", "soon", "2026-01-05", "2026-01-05T10:00:00", [1], "1767607200000"]
)
def test_what_names_no_moment_is_refused(value: object) -> None:
    with pytest.raises(EventTimeError) as caught:
        parse_event_time(value)
    assert caught.value.value == value


def test_whole_numbers_are_milliseconds_already() -> None:
    assert parse_event_time(1_767_607_200_000) == 1_767_607_200_000
