"""Waits for alerts to leave PENDING: one query for all who wait, so that a thousand of them cost what one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog
from psycopg import OperationalError
from starlette.concurrency import run_in_threadpool

from contracts.vocabulary import Status

POLL_SECONDS: Final = 0.02
MAX_WAITING: Final = 10_000  # beyond, a create answers at once with what it knows: PENDING

log = structlog.get_logger()


class ActivationWaiter:
    """Lives in one event loop. `read_statuses` is called in a thread with the alert_ids that are waited for."""

    def __init__(self, read_statuses: Callable[[Collection[int]], Mapping[int, Status]]) -> None:
        self._read_statuses = read_statuses
        self._waiting: dict[int, list[asyncio.Event]] = {}
        self._polling: asyncio.Task[None] | None = None

    async def wait(self, alert_id: int, seconds: float) -> None:
        """Return when the alert is no longer PENDING, or after so many seconds."""
        if seconds <= 0 or len(self._waiting) >= MAX_WAITING:
            return
        changed = asyncio.Event()
        self._waiting.setdefault(alert_id, []).append(changed)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            self._forget(alert_id, changed)

    def _forget(self, alert_id: int, changed: asyncio.Event) -> None:
        events = self._waiting.get(alert_id, [])
        if changed in events:
            events.remove(changed)
        if not events:
            self._waiting.pop(alert_id, None)

    async def _poll(self) -> None:
        while self._waiting:
            try:
                statuses = await run_in_threadpool(self._read_statuses, list(self._waiting))
            except OperationalError as error:
                log.warning("cannot see activations for the moment", error=str(error))
                statuses = {}
            for alert_id, status in statuses.items():
                if status is not Status.PENDING:
                    for changed in self._waiting.pop(alert_id, []):
                        changed.set()
            await asyncio.sleep(POLL_SECONDS)

    async def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
