"""The loop that drives a service: step, rest, health, back-off, stop on a signal."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from ports.clock import Clock, SystemClock

HEALTH_INTERVAL_MS: Final = 1_000
MAX_BACKOFF_SECONDS: Final = 5.0
FIRST_BACKOFF_SECONDS: Final = 0.1

log = structlog.get_logger()


class Service(Protocol):
    """One unit of work at a time, so that a simulation can interleave services at every step."""

    def step(self) -> bool:
        """Do what is there to do, at most one batch. False: nothing was there.

        A step that raises has changed nothing that the next `step` won't put right.
        """
        ...

    def detail(self) -> dict[str, Any]:
        """Figures for the health file: positions, backlog, counters. No secrets."""
        ...

    def close(self) -> None: ...


def write_health(path: Path | None, ok: bool, at_ms: int, detail: dict[str, Any]) -> None:
    """Replace the health file at once, so that a reader never sees half of it."""
    if path is None:
        return
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"ok": ok, "at_ms": at_ms, "pid": os.getpid(), "detail": detail}))
    fresh.replace(path)


def run_service(
    open_service: Callable[[Clock], Service],
    health_file: Path | None,
    passing_errors: tuple[type[Exception], ...],
    idle_seconds: float = 0.01,
    max_idle_seconds: float | None = None,
) -> None:
    """Drive a service until SIGTERM or SIGINT.

    After a step that found nothing it rests for `idle_seconds`, and twice as long after each further one, at most
    `max_idle_seconds` (None: never longer). So a rest is at most as long as the quiet before it.

    On one of `passing_errors` (a dependency is away) it is closed, and opened anew after a growing rest: state
    that was half done lives in the log and the database. Any other error ends the process; the supervisor
    restarts it.
    """
    clock = SystemClock()
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        clock.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    backoff = FIRST_BACKOFF_SECONDS
    while not stopping:
        service = None
        try:
            service = open_service(clock)
            told = -HEALTH_INTERVAL_MS
            rest = idle_seconds
            while not stopping:
                worked = service.step()
                backoff = FIRST_BACKOFF_SECONDS
                if clock.monotonic_ms() - told >= HEALTH_INTERVAL_MS:
                    write_health(health_file, True, clock.wall_ms(), service.detail())
                    told = clock.monotonic_ms()
                if worked:
                    rest = idle_seconds
                else:
                    clock.wait(rest)
                    rest = min(rest * 2, max(idle_seconds, max_idle_seconds or 0.0))
        except passing_errors as error:
            log.warning(
                "dependency away, trying again", error=str(error), kind=type(error).__name__, rest_seconds=backoff
            )
            write_health(health_file, False, clock.wall_ms(), {"error": str(error)})
            clock.wait(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)
        finally:
            if service is not None:
                service.close()
