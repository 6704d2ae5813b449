"""The loop around a service: how it rests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from ports import service
from ports.service import run_service


class RecordingClock:
    """Rests take no time; the last planned step ends the loop as SIGTERM does."""

    def __init__(self) -> None:
        self.rests: list[float] = []

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0

    def wait(self, seconds: float) -> None:
        self.rests.append(seconds)

    def stop(self) -> None: ...


class Planned:
    """Finds work in the steps of the plan."""

    def __init__(self, plan: str) -> None:
        self.plan = iter(plan)
        self.closed = False

    def step(self) -> bool:
        found = next(self.plan, None)
        if found is None:
            signal.raise_signal(signal.SIGTERM)
        return found == "w"

    def detail(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def rests_of(plan: str, monkeypatch: pytest.MonkeyPatch, *idle: float) -> list[float]:
    clock, planned = RecordingClock(), Planned(plan)
    monkeypatch.setattr(service, "SystemClock", lambda: clock)
    run_service(lambda _: planned, None, (), *idle)
    assert planned.closed
    return clock.rests[:-1]  # the last is of the step that stopped it


def test_rests_grow_while_nothing_comes_and_begin_anew_after_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rests_of("iiiiiwiiw", monkeypatch, 0.01, 0.05) == [0.01, 0.02, 0.04, 0.05, 0.05, 0.01, 0.02]


def test_under_load_it_never_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rests_of("wwwwww", monkeypatch, 0.01, 0.05) == []


def test_rests_stay_as_they_are_when_no_longer_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rests_of("iiii", monkeypatch, 0.01) == [0.01] * 4
    assert rests_of("iiii", monkeypatch, 0.0, 0.0) == [0.0] * 4
