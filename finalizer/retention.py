"""Ended alerts and published rule commands leave the tables after a while: into an archive, or for good.

A pass walks a table by its primary key, a bounded page a step and at most one a second, so that no index of the hot
path is kept for it and nobody waits for it: rows that others hold are left for the next pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from finalizer.failpoints import Failpoint, survive
from ports.clock import Clock

PAGE_ROWS: Final = 5_000
PAGE_REST_MS: Final = 1_000
PASS_REST_MS: Final = 600_000
DAY_MS: Final = 86_400_000

log = structlog.get_logger()

Keep = Callable[[Sequence[Any]], None]


class RetentionStore(Protocol):
    """Each call is a transaction over the page behind `after`: (the page's last key, None at the end; rows dropped)."""

    def drop_alerts(self, after: int, rows: int, before_ms: int, keep: Keep) -> tuple[int | None, int]:
        """Alerts that ended before `before_ms` with triggers, deliveries and idempotency keys, once nothing of them is
        under way. `keep` is given them as JSON values before they are gone."""

    def drop_commands(self, after: int, rows: int, before_ms: int) -> tuple[int | None, int]:
        """Rule commands that were published before `before_ms`."""


@dataclass(slots=True)
class _Walk:
    name: str
    days: float | None
    after: int = 0
    due_ms: int = 0
    dropped: int = 0
    failed: int = 0


class Retention:
    """Service. Any number may run. Its places are in memory: whoever begins again looks again."""

    def __init__(
        self,
        store: RetentionStore,
        clock: Clock,
        *,
        alert_days: float | None,
        command_days: float | None,
        keep: Keep,
        fail: Failpoint = survive,
    ) -> None:
        """Days after an alert's end, or a command's publication; None: for ever."""
        self._store, self._clock, self._keep, self._fail = store, clock, keep, fail
        self._alerts, self._commands = _Walk("alerts", alert_days), _Walk("commands", command_days)

    def step(self) -> bool:
        """A page of each table that is due. False always: its next page is due by the clock, not at once."""
        self._step_one(self._alerts, self._drop_alerts)
        self._step_one(self._commands, self._store.drop_commands)
        return False

    def _step_one(self, walk: _Walk, drop: Callable[[int, int, int], tuple[int | None, int]]) -> None:
        now_ms = self._clock.monotonic_ms()
        if walk.days is None or now_ms < walk.due_ms:
            return
        before_ms = self._clock.wall_ms() - round(walk.days * DAY_MS)
        try:
            until, dropped = drop(walk.after, PAGE_ROWS, before_ms)
        except OSError as error:  # expiry lives in the same process, and doesn't wait for a disk
            walk.failed += 1
            walk.due_ms = now_ms + PASS_REST_MS
            log.error("retention", rows=walk.name, error=str(error), remedy="make room for ALERTS_RETENTION_FOLDER")
            return
        self._fail(f"{walk.name}: committed")
        walk.dropped += dropped
        walk.after = until or 0
        walk.due_ms = now_ms + (PASS_REST_MS if until is None else PAGE_REST_MS)

    def _drop_alerts(self, after: int, rows: int, before_ms: int) -> tuple[int | None, int]:
        return self._store.drop_alerts(after, rows, before_ms, self._keep_all)

    def _keep_all(self, rows: Sequence[Any]) -> None:
        self._keep(rows)
        self._fail("alerts: kept, before commit")

    def detail(self) -> dict[str, Any]:
        return {
            "alerts_dropped": self._alerts.dropped,
            "commands_dropped": self._commands.dropped,
            "retention_failures": self._alerts.failed + self._commands.failed,
        }

    def close(self) -> None: ...
