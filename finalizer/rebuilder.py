"""Reads the live rules of a shard out into its log, so that its matcher compares or mends its index:
docs/architecture.md, "Rebuild and verify"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from contracts.frames_pb2 import BeginRebuild, Command, EndRebuild
from finalizer.failpoints import Failpoint, survive
from finalizer.shard_ports import BEGINNING, Cursor, RebuildPhase, RebuildStore, RebuildWork

MAX_RULES_A_PAGE: Final = 500
MAX_PAGES_AHEAD: Final = 16  # of what the matcher has answered: bounds the log, and how long its other work waits

log = structlog.get_logger()


@dataclass(slots=True)
class _Reading:
    """How far the table is read, in this process's memory alone: whoever begins again asserts some rules twice."""

    cursor: Cursor = BEGINNING
    held_by_others: list[int] = field(default_factory=list)
    is_read: bool = False


class Rebuilder:
    """Service. Any number may run: each step is one transaction that holds the rebuild's row."""

    def __init__(self, store: RebuildStore, fail: Failpoint = survive) -> None:
        self._store, self._fail = store, fail
        self._readings: dict[int, _Reading] = {}
        self._pages = 0
        self._done = 0

    def step(self) -> bool:
        """One bounded transaction for each rebuild under way."""
        worked = False
        under_way = self._store.under_way()
        self._readings = {key: reading for key, reading in self._readings.items() if key in under_way}
        for rebuild_id in under_way:
            try:
                worked = self._step_one(rebuild_id) or worked
            except BaseException:
                self._readings.pop(rebuild_id, None)  # its cursor may be ahead of what was committed
                raise
        return worked

    def _step_one(self, rebuild_id: int) -> bool:
        with self._store.hold(rebuild_id) as work:
            if work is None:
                return False
            phase = work.rebuild.phase
            worked = self._advance(work)
            self._fail(f"{phase.lower()}: before commit")
        self._fail(f"{phase.lower()}: committed")
        return worked

    def _advance(self, work: RebuildWork) -> bool:
        rebuild = work.rebuild
        match rebuild.phase:
            case RebuildPhase.BEGINNING:
                if rebuild.begun:
                    return self._enter(work, RebuildPhase.ASSERTING)
                return self._begin(work)
            case RebuildPhase.ASSERTING:
                return self._assert(work)
            case RebuildPhase.ENDING:
                return self._enter(work, RebuildPhase.DONE) if rebuild.ended else False
            case RebuildPhase.DONE:
                return False

    def _enter(self, work: RebuildWork, phase: RebuildPhase) -> bool:
        work.enter(phase)
        self._done += phase is RebuildPhase.DONE
        log.info("rebuild", rebuild_id=work.rebuild.rebuild_id, shard=work.rebuild.shard, enters=phase)
        return True

    def _begin(self, work: RebuildWork) -> bool:
        rebuild = work.rebuild
        if rebuild.commands:
            return False  # sent, its answer is on its way
        begin = BeginRebuild(
            rebuild_id=rebuild.rebuild_id,
            symbol=rebuild.symbol or "",
            repair=rebuild.repair,
            event_time_ms=rebuild.frontier_ms,
        )
        work.send(Command(begin_rebuild=begin))
        return True

    def _assert(self, work: RebuildWork) -> bool:
        rebuild = work.rebuild
        if rebuild.commands - 1 - rebuild.reported >= MAX_PAGES_AHEAD:
            return False
        reading = self._readings.setdefault(rebuild.rebuild_id, _Reading())
        again, reading.held_by_others = reading.held_by_others, []
        if again:
            return self._send_page(work, reading, again)
        if not reading.is_read:
            page = work.live(reading.cursor, MAX_RULES_A_PAGE)
            if page:
                reading.cursor = page[-1].cursor
                wanted = [alert.alert_id for alert in page if rebuild.symbol in (None, alert.symbol)]
                return self._send_page(work, reading, wanted) or True
            reading.is_read = True
        end = EndRebuild(rebuild_id=rebuild.rebuild_id, event_time_ms=rebuild.frontier_ms)
        work.send(Command(end_rebuild=end))
        return self._enter(work, RebuildPhase.ENDING)

    def _send_page(self, work: RebuildWork, reading: _Reading, alert_ids: list[int]) -> bool:
        """False: nothing of it could be read."""
        page = work.read(alert_ids) if alert_ids else None
        if page is None:
            return False
        reading.held_by_others += page.held_by_others
        if page.rules:
            work.send(page.command, page.rules)
            self._pages += 1
            self._fail("asserted")
        return page.rules > 0

    def detail(self) -> dict[str, Any]:
        return {"rebuilds_done": self._done, "pages_asserted": self._pages, "rebuilds": len(self._readings)}

    def close(self) -> None: ...
