"""Sources that belong to one feed (`feeds.settings`, "source"): opened with it, polled beside the process's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from feeds.domain.entry import SourceEntry
from feeds.domain.feed_clock import SourceState
from feeds.sources.plug_ins import SourceOrder, open_feed_source, session_position
from feeds.sources.source import Source, SourceError
from ports.clock import Clock

RETRY_MS: Final = 10_000  # after a source that couldn't be opened or broke
Opener = Callable[[object, SourceOrder], Source]

log = structlog.get_logger()


@dataclass(slots=True)
class _Own:
    """One feed's source as it is wanted; `source` None: it can't be opened at the moment."""

    stored: object
    lease: int
    source: Source | None = None
    fault: str | None = None
    tried_ms: int = 0
    opening: int = 0  # counts every opening of this process: another number is another connection


@dataclass(slots=True)
class OwnSources:
    """Any number of feeds' sources. One that breaks is closed and opened again; the others, and the feeds, go on."""

    clock: Clock
    secrets: Mapping[str, str] = field(default_factory=dict)
    opener: Opener = open_feed_source
    _own: dict[str, _Own] = field(default_factory=dict)
    _openings: int = 0

    def keep(
        self, feed: str, lease: int, settings: Mapping[str, Any], starts: Mapping[str, int], frontier_ms: int
    ) -> None:
        """Have the source that the settings name, from `starts` on; None when they name none."""
        stored = settings.get("source")
        own = self._own.get(feed)
        if own is not None and (own.stored != stored or own.lease != lease):
            self.drop(feed)
            own = None
        if stored is None:
            return
        if own is None:
            own = self._own[feed] = _Own(stored, lease, tried_ms=self.clock.monotonic_ms() - RETRY_MS)
        if own.source is None and self.clock.monotonic_ms() - own.tried_ms >= RETRY_MS:
            own.tried_ms = self.clock.monotonic_ms()
            self._open(feed, own, starts, frontier_ms)

    def _open(self, feed: str, own: _Own, starts: Mapping[str, int], frontier_ms: int) -> None:
        name = f"source:{feed}"
        first = max(session_position(own.lease), starts.get(name, 0))
        order = SourceOrder(feed, name, self.clock, first, frontier_ms, self.secrets)
        try:
            source = self.opener(own.stored, order)
            source.seek({name: starts[name]} if name in starts else {})
        except SourceError as error:
            self._break(feed, own, error)
            return
        own.source, own.fault = source, None
        self._openings += 1
        own.opening = self._openings
        log.info("source opened", feed=feed)

    def _break(self, feed: str, own: _Own, error: SourceError) -> None:
        if own.fault != str(error):
            log.error("source not usable", feed=feed, error=str(error))
        own.fault = str(error)
        if own.source is not None:
            own.source.close()
            own.source = None

    def poll(self, max_entries: int) -> Sequence[tuple[str, Sequence[SourceEntry], Mapping[str, int]]]:
        """(feed, its next entries, its positions behind them) of each source that is open. Never waits."""
        found = []
        for feed, own in self._own.items():
            if own.source is None:
                continue
            try:
                found.append((feed, own.source.poll(max_entries, 0.0), own.source.positions()))
            except SourceError as error:
                own.tried_ms = self.clock.monotonic_ms()
                self._break(feed, own, error)
        return found

    def state(self, feed: str, shared: SourceState) -> SourceState:
        """Of everything that a feed gets: caught up when both are, another connection when either has one."""
        own = self._own.get(feed)
        if own is None:
            return shared
        if own.source is None:
            return SourceState(shared.connection, None)
        state = own.source.state()
        proofs = (shared.caught_up_at_ms, state.caught_up_at_ms)
        proof_ms = None if proofs[0] is None or proofs[1] is None else min(proofs[0], proofs[1])
        return SourceState(shared.connection + (own.opening << 32) + state.connection, proof_ms)

    def drop(self, feed: str) -> None:
        """The feed is left, or gets another source."""
        own = self._own.pop(feed, None)
        if own is not None and own.source is not None:
            own.source.close()

    def detail(self) -> dict[str, Any]:
        """Feed -> what its source says of itself."""
        found: dict[str, Any] = {}
        for feed, own in self._own.items():
            told: dict[str, Any] = getattr(own.source, "detail", dict)() if own.source is not None else {}
            found[feed] = {**told, "fault": own.fault or told.get("fault")}
        return found

    def close(self) -> None:
        for feed in list(self._own):
            self.drop(feed)
