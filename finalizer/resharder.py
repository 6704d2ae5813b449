"""Moves symbols between shards while prices and alerts go on: docs/architecture.md, "Reshard"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from contracts.frames_pb2 import Routing
from contracts.vocabulary import Status
from finalizer.failpoints import Failpoint, survive
from finalizer.shard_ports import BEGINNING, Cursor, LiveAlert, Phase, Reshard, ReshardStore, ReshardWork
from ports.clock import Clock

MAX_ALERTS_A_TRANSACTION: Final = 2_000
MAX_UNPUBLISHED_COMMANDS: Final = 20_000  # of the new shards: copying waits for the relay

log = structlog.get_logger()


@dataclass(slots=True)
class Walk:
    """A walk through the live alerts of the old shards, page by page, in this process's memory alone.

    Whoever begins again from the start does nothing twice, so a driver's death costs time only.
    """

    phase: Phase
    shards: Sequence[str]
    place: int = 0
    cursor: Cursor = BEGINNING
    left: int = 0  # alerts of this pass that were not as they must be when it came to them

    def begin_again(self) -> None:
        self.place, self.cursor, self.left = 0, BEGINNING, 0


@dataclass(slots=True)
class Figures:
    """Process-local counts."""

    copied: int = 0
    switched: int = 0
    done: int = 0
    waiting: dict[str, str] = field(default_factory=dict)  # symbol -> what its reshard waits for


class Resharder:
    """Service. Any number may run: each step is one transaction that holds the reshard's row."""

    def __init__(self, store: ReshardStore, clock: Clock, fail: Failpoint = survive) -> None:
        self._store, self._clock, self._fail = store, clock, fail
        self._walks: dict[int, Walk] = {}
        self._figures = Figures()

    def step(self) -> bool:
        """One bounded transaction for each reshard under way."""
        worked = False
        under_way = self._store.under_way()
        self._walks = {reshard_id: walk for reshard_id, walk in self._walks.items() if reshard_id in under_way}
        for reshard_id in under_way:
            try:
                worked = self._step_one(reshard_id) or worked
            except BaseException:
                self._walks.pop(reshard_id, None)  # its place may be ahead of what was committed
                raise
        return worked

    def _step_one(self, reshard_id: int) -> bool:
        with self._store.hold(reshard_id) as work:
            if work is None:
                return False
            phase = work.reshard.phase
            worked = self._advance(work)
            self._fail(f"{phase.lower()}: before commit")
        self._fail(f"{phase.lower()}: committed")
        return worked

    def _advance(self, work: ReshardWork) -> bool:
        steps = {
            Phase.OPENING: self._open,
            Phase.DRAINING: self._drain,
            Phase.MARKING: self._await_copy_marks,
            Phase.COPYING: self._copy,
            Phase.ENDING: self._await_end_marks,
            Phase.SWITCHING: self._switch,
        }
        return steps[work.reshard.phase](work)

    def _enter(self, work: ReshardWork, phase: Phase, record: Routing.Phase | None = None) -> bool:
        if record is not None:
            work.send(record)
        work.enter(phase)
        reshard = work.reshard
        self._figures.waiting.pop(reshard.new.symbol, None)
        self._figures.done += phase is Phase.DONE
        log.info("reshard", symbol=reshard.new.symbol, shards=reshard.new.shards, version=reshard.version, enters=phase)
        return True

    def _are_marked(self, work: ReshardWork, phase: Routing.Phase, shards: Sequence[str]) -> bool:
        marked = work.marked(phase, shards)
        name = Routing.Phase.Name(phase)
        self._wait(work, f"{marked} of {len(shards)} shards have come to {name}")
        return marked == len(shards)

    def _wait(self, work: ReshardWork, what: str) -> None:
        self._figures.waiting[work.reshard.new.symbol] = what

    def _open(self, work: ReshardWork) -> bool:
        if not self._are_marked(work, Routing.OPEN, work.reshard.new.all_shards()):
            return False
        work.route_creates()
        return self._enter(work, Phase.DRAINING)

    def _drain(self, work: ReshardWork) -> bool:
        """No alert of an old shard may still become ACTIVE there once COPY is sent."""
        walk = self._walk(work.reshard)
        for shard, page in self._page(work, walk):
            symbol = work.reshard.new.symbol
            pending = [alert for alert in page if alert.symbol == symbol and alert.status is Status.PENDING]
            if pending:
                self._wait(work, f"alert {pending[0].alert_id} is not active in shard {shard} yet")
                return False
            return self._turn_page(walk, page)
        return self._enter(work, Phase.MARKING, Routing.COPY)

    def _await_copy_marks(self, work: ReshardWork) -> bool:
        marked = self._are_marked(work, Routing.COPY, work.reshard.new.all_shards())
        return marked and self._enter(work, Phase.COPYING)

    def _await_end_marks(self, work: ReshardWork) -> bool:
        marked = self._are_marked(work, Routing.END, work.reshard.old.all_shards())
        return marked and self._enter(work, Phase.SWITCHING)

    def _copy(self, work: ReshardWork) -> bool:
        reshard = work.reshard
        waiting = work.unpublished(reshard.new.all_shards(), MAX_UNPUBLISHED_COMMANDS)
        if waiting >= MAX_UNPUBLISHED_COMMANDS:
            self._wait(work, f"{waiting} commands for the new shards are not published yet")
            return False
        walk = self._walk(reshard)
        for shard, page in self._page(work, walk):
            mine = [alert for alert in page if alert.symbol == reshard.new.symbol and alert.status is Status.ACTIVE]
            fresh = [alert for alert in mine if not alert.moves]
            if fresh:
                self._figures.copied += work.copy(shard, _targets(reshard, fresh))
                self._fail("copied")
            walk.left += sum(not alert.acknowledged for alert in mine)
            return self._turn_page(walk, page)
        if walk.left == 0:
            return self._enter(work, Phase.ENDING, Routing.END)
        self._wait(work, f"{walk.left} alerts are not in their new shards yet")
        walk.begin_again()
        return False

    def _switch(self, work: ReshardWork) -> bool:
        reshard = work.reshard
        walk = self._walk(reshard)
        for shard, page in self._page(work, walk):
            mine = [alert for alert in page if alert.symbol == reshard.new.symbol]
            if mine:
                self._figures.switched += work.switch(shard, _targets(reshard, mine), self._clock.wall_ms())
                self._fail("switched")
            walk.left += len(mine)
            return self._turn_page(walk, page)
        if walk.left:  # done only when a whole pass has found none
            self._wait(work, f"the last pass found {walk.left} alerts in old shards")
            walk.begin_again()
            return False
        if work.forget_claims(MAX_ALERTS_A_TRANSACTION):
            return True
        return self._enter(work, Phase.DONE)

    # -- the walk
    def _walk(self, reshard: Reshard) -> Walk:
        walk = self._walks.get(reshard.reshard_id)
        if walk is None or walk.phase is not reshard.phase:
            walk = self._walks[reshard.reshard_id] = Walk(reshard.phase, reshard.old.all_shards())
        return walk

    def _page(self, work: ReshardWork, walk: Walk) -> Iterator[tuple[str, Sequence[LiveAlert]]]:
        """The page that the walk is at; none when it has come to the end."""
        while walk.place < len(walk.shards):
            shard = walk.shards[walk.place]
            page = work.live(shard, walk.cursor, MAX_ALERTS_A_TRANSACTION)
            if page:
                yield shard, page
                return
            walk.place, walk.cursor = walk.place + 1, BEGINNING

    def _turn_page(self, walk: Walk, page: Sequence[LiveAlert]) -> bool:
        walk.cursor = page[-1].cursor
        return True

    def detail(self) -> dict[str, Any]:
        figures = self._figures
        return {
            "reshards_done": figures.done,
            "alerts_copied": figures.copied,
            "alerts_switched": figures.switched,
            "waiting": dict(figures.waiting),
        }

    def close(self) -> None: ...


def _targets(reshard: Reshard, alerts: Sequence[LiveAlert]) -> Mapping[int, str]:
    return {alert.alert_id: reshard.new.shard_of(alert.alert_id) for alert in alerts}
