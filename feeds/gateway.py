"""The gateway process: serves any number of feeds from one source and from the feeds' own, each under its own lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from google.protobuf.message import DecodeError

from contracts.dead_letter import DeadLetter, Reason, dead_letter
from contracts.frames_pb2 import Control
from contracts.topics import DEAD_LETTERS, PRICES
from feeds.domain.entry import Refusal, SourceEntry
from feeds.domain.gateway_core import GatewayCore
from feeds.domain.pending_frame import CutFrame
from feeds.domain.tick import shown
from feeds.feed_opening import FeedOpener
from feeds.own_sources import OwnSources
from feeds.ports import FeedRow, FeedStore, LeaseLostError
from feeds.recovery import Checkpoint
from feeds.sources.source import Source
from ports.clock import Clock
from ports.message_log import LogReader, LogWriter

MAX_POLL_ENTRIES: Final = 4_096  # a poll that returns so many is catching up
POLL_SECONDS: Final = 0.01
FEEDS_INTERVAL_MS: Final = 1_000  # leases checked, new feeds noticed
CONTROLS_INTERVAL_MS: Final = 100
CHECKPOINT_INTERVAL_MS: Final = 10_000
TAKE_OVER_MS: Final = 3 * CHECKPOINT_INTERVAL_MS  # a gateway that saves no checkpoint for so long has died
MAX_CONTROLS: Final = 500

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Served:
    """Which feeds this process serves. feeds None: every one of the environment. default_feed None: the only one."""

    feeds: frozenset[str] | None = None
    default_feed: str | None = None


class FeedGateway:
    """ports.service.Service. After any error it must be closed and opened anew: it then recovers from the log."""

    def __init__(
        self,
        *,
        store: FeedStore,
        source: Source,
        writer: LogWriter,
        prices: LogReader,
        clock: Clock,
        served: Served,
        topic_prefix: str = "",
        own_sources: OwnSources | None = None,
    ) -> None:
        """Takes the leases of its feeds and recovers. prices: a reader of its own for prices.v1."""
        self._store = store
        self._source = source
        self._writer = writer
        self._prices = prices
        self._clock = clock
        self._served = served
        self._prices_topic = PRICES.named(topic_prefix)
        self._dead_letters_topic = DEAD_LETTERS.named(topic_prefix)
        self._cores: dict[str, GatewayCore] = {}
        self._rows: dict[str, FeedRow] = {}
        self._lost: dict[str, tuple[int, int]] = {}  # feed -> signs of life of whoever serves it, and since when
        self._opener = FeedOpener(store, writer, prices, self._prices_topic, clock)
        self._letters: list[DeadLetter] = []
        self._asked_feeds_ms = self._asked_controls_ms = self._saved_ms = clock.monotonic_ms()
        self._frames = 0
        self._own = own_sources or OwnSources(clock)
        self._refresh({})
        self._source.seek(self._start_positions())

    # -- the loop ---------------------------------------------------------------------------------
    def step(self) -> bool:
        """Poll the source once, and write what is ready."""
        if self._due(self._asked_feeds_ms, FEEDS_INTERVAL_MS):
            self._asked_feeds_ms = self._clock.monotonic_ms()
            before = dict(self._source.positions())
            if self._refresh(before):
                self._rewind_if_needed()
        before = dict(self._source.positions())
        entries = self._source.poll(MAX_POLL_ENTRIES, POLL_SECONDS)
        if self._due(self._asked_controls_ms, CONTROLS_INTERVAL_MS):
            self._asked_controls_ms = self._clock.monotonic_ms()
            self._publish_controls()
        if self._dispatch(entries, before):
            positions = self._source.positions()
            for core in self._cores.values():
                core.advance(positions)
        own_entries = self._poll_own()
        wrote = self._write(catching_up=max(len(entries), own_entries) >= MAX_POLL_ENTRIES)
        if self._due(self._saved_ms, CHECKPOINT_INTERVAL_MS):
            self._saved_ms = self._clock.monotonic_ms()
            self._save_checkpoints()
        return bool(entries) or bool(own_entries) or wrote

    def _poll_own(self) -> int:
        """Each feed's own source, once: its entries are that feed's, whatever they say. How many came."""
        count, now_ms = 0, self._clock.monotonic_ms()
        for feed, entries, positions in self._own.poll(MAX_POLL_ENTRIES):
            core = self._cores.get(feed)
            if core is None:
                continue
            for entry in entries:
                core.accept(entry, now_ms)
            core.advance(positions)
            count += len(entries)
        return count

    def _due(self, last_ms: int, interval_ms: int) -> bool:
        return self._clock.monotonic_ms() - last_ms >= interval_ms

    def _dispatch(self, entries: Sequence[SourceEntry], before: Mapping[str, int]) -> bool:
        """Hand each entry to its feed. False: the source was set back, the rest of the batch comes again.

        A feed that nobody has heard of is looked up once a batch: whoever declared it before it sent is served.
        """
        cores, now_ms = self._cores, self._clock.monotonic_ms()
        default = self._default_core()
        asked = False
        for entry in entries:
            body = entry.body
            name = body.get("feed") if type(body) is dict else None
            if name is None:
                core = default
            elif type(name) is str:
                core = cores.get(name)
                if core is None and not asked and self._may_serve(name):
                    asked = True
                    if self._refresh(before) and self._rewind_if_needed():
                        return False
                    default, core = self._default_core(), cores.get(name)
            else:
                core = None
            if core is not None:
                core.accept(entry, now_ms)
            else:
                self._undeliverable(entry, name)
        return True

    def _default_feed(self) -> str | None:
        """Where entries go that name no feed."""
        only = next(iter(self._rows)) if len(self._rows) == 1 else None
        return self._served.default_feed or only

    def _default_core(self) -> GatewayCore | None:
        feed = self._default_feed()
        return None if feed is None else self._cores.get(feed)

    def _may_serve(self, feed: str) -> bool:
        return (self._served.feeds is None or feed in self._served.feeds) and feed not in self._lost

    def _watch_lost(self) -> None:
        """A feed whose gateway gives no sign of life any more is nobody's: it may be taken."""
        now_ms = self._clock.monotonic_ms()
        for feed, (signs, since_ms) in list(self._lost.items()):
            row = self._rows.get(feed)
            if row is None or (now_ms - since_ms >= TAKE_OVER_MS and row.signs_of_life == signs):
                del self._lost[feed]
            elif row.signs_of_life != signs:
                self._lost[feed] = row.signs_of_life, now_ms

    def _undeliverable(self, entry: SourceEntry, name: object) -> None:
        """No feed's entry: a dead letter of the gateway that serves every feed, silence from others."""
        feed = self._default_feed() if name is None else name
        if self._served.feeds is not None or (isinstance(feed, str) and feed in self._rows):
            return
        problem = Refusal(Reason.UNKNOWN_FEED, f"feed: {shown(feed)} does not exist")
        if isinstance(entry.body, Refusal):
            problem = entry.body
        elif name is None:
            problem = Refusal(Reason.UNKNOWN_FEED, "names no feed, and there is not just one; set ALERTS_DEFAULT_FEED")
        self._letters.append(
            dead_letter(
                problem.reason,
                problem.detail,
                feed=feed if isinstance(feed, str) else "",
                symbol=None,
                source=entry.partition,
                position=entry.position,
                raw=entry.raw,
            )
        )

    # -- writing ----------------------------------------------------------------------------------
    def _write(self, *, catching_up: bool = False, everything: bool = False) -> bool:
        """Dead letters first, then frames, each acknowledged before the next step: positions say what is written."""
        now_ms = self._clock.monotonic_ms()
        shared = self._source.state()
        frames: list[CutFrame] = []
        letters, self._letters = self._letters, []
        for feed, core in self._cores.items():
            core.beat(self._own.state(feed, shared), now_ms)
            frames += core.cut(now_ms, catching_up=catching_up, everything=everything)
            letters += core.take_dead_letters()
        if letters:
            for letter in letters:
                key = f"{letter.source}/{letter.position}".encode()
                value = letter.model_dump_json().encode()
                self._writer.append(self._dead_letters_topic, key, value, self._clock.wall_ms())
            self._writer.flush()
        unacknowledged: set[bytes] = set()
        for frame in frames:
            if frame.key in unacknowledged:  # a log may lose a record and keep its successor
                self._writer.flush()
                unacknowledged.clear()
            self._writer.append(self._prices_topic, frame.key, frame.value, frame.timestamp_ms)
            unacknowledged.add(frame.key)
        if frames:
            self._writer.flush()
        self._frames += len(frames)
        return bool(frames or letters)

    def _publish_controls(self) -> None:
        """Numbered controls go behind everything accepted so far, and are marked once they are acknowledged."""
        if not self._cores:
            return
        for feed in self._store.feeds_with_controls(sorted(self._cores)):
            try:
                self._publish_some(self._cores[feed])
            except LeaseLostError as error:
                self._leave(error)

    def _publish_some(self, core: GatewayCore) -> bool:
        """At most MAX_CONTROLS of a feed; whether more may wait. Raises LeaseLostError."""
        feed = core.settings.feed
        pending = self._store.number_controls(feed, core.lease, MAX_CONTROLS)
        for row in pending:
            control = Control()
            try:
                control.ParseFromString(row.payload)
            except DecodeError:
                log.error("a control is not readable and left out", feed=feed, control_id=row.control_id)
                continue
            core.accept_control(control, row.control_number, row.bucket, self._clock.monotonic_ms())
        self._write(everything=True)
        self._store.mark_published(feed, core.lease, [row.control_id for row in pending])
        return len(pending) == MAX_CONTROLS

    # -- feeds ------------------------------------------------------------------------------------
    def _refresh(self, start: Mapping[str, int]) -> bool:
        """Leave feeds that another gateway has taken, open new ones from `start`. True: one was opened."""
        self._rows = {row.feed: row for row in self._store.list_feeds()}
        for feed, core in list(self._cores.items()):
            if feed not in self._rows or self._rows[feed].lease != core.lease:
                self._leave(LeaseLostError(feed, core.lease))
        self._watch_lost()
        wanted = [row for feed, row in self._rows.items() if feed not in self._cores and self._may_serve(feed)]
        opened = self._opener.open(wanted, start)
        for feed, opened_core in opened.items():
            if opened_core is None:
                self._lose(feed)
            else:
                self._open(opened_core)
        for feed, core in self._cores.items():
            self._own.keep(feed, core.lease, self._rows[feed].settings, core.start_positions(), core.frontier_ms())
        return bool(opened)

    def _open(self, core: GatewayCore) -> None:
        """Serve a feed. All its controls come before its first tick: the rolling job knows instruments by them alone,
        while the core has read the table."""
        self._cores[core.settings.feed] = core
        try:
            while self._publish_some(core):
                pass
        except LeaseLostError as error:
            self._leave(error)

    def _leave(self, error: LeaseLostError) -> None:
        log.warning("feed left", feed=error.feed, reason=str(error))
        self._cores.pop(error.feed, None)
        self._own.drop(error.feed)
        if error.feed in self._rows:
            self._lose(error.feed)

    def _lose(self, feed: str) -> None:
        self._lost[feed] = self._rows[feed].signs_of_life, self._clock.monotonic_ms()

    def _start_positions(self) -> dict[str, int]:
        """Least over all feeds; a partition that a feed doesn't know begins at its beginning."""
        starts = [core.start_positions() for core in self._cores.values()]
        partitions = {partition for start in starts for partition in start}
        return {partition: min(start.get(partition, 0) for start in starts) for partition in partitions}

    def _rewind_if_needed(self) -> bool:
        """A feed that was opened late may lack what has gone by. What others have accepted is written first, so that
        they know it again when it comes by once more."""
        starts = self._start_positions()
        if all(starts.get(partition, 0) >= position for partition, position in self._source.positions().items()):
            return False
        self._write(everything=True)
        self._source.seek(starts)
        return True

    def _save_checkpoints(self) -> None:
        """Offsets first: what the cores know by then is at least what lies before them."""
        offsets = self._prices.end_offsets(self._prices_topic)
        checkpoints = {}
        for feed, core in self._cores.items():
            has = core.written()
            checkpoint = Checkpoint(
                offsets=offsets,
                lease=core.lease,
                frontier_ms=has.frontier_ms,
                positions={bucket: dict(positions) for bucket, positions in has.positions.items()},
            )
            checkpoints[feed] = checkpoint.model_dump_json()
        if checkpoints:
            self._store.save_checkpoints({feed: core.lease for feed, core in self._cores.items()}, checkpoints)

    # -- told -------------------------------------------------------------------------------------
    def detail(self) -> dict[str, Any]:
        return {
            "source": dict(self._source.positions()),
            "caught_up": self._source.state().caught_up_at_ms is not None,
            "frames": self._frames,
            "feeds": {
                feed: {"lease": core.lease, "accepted": core.accepted, "rejected": core.rejected}
                for feed, core in self._cores.items()
            },
            "lost": sorted(self._lost),
            "refused": self._opener.refused,
            "own_sources": self._own.detail(),
        }

    def close(self) -> None:
        """Writes nothing: what is unwritten is read again by the next."""
        self._own.close()
        self._source.close()
        self._prices.close()
        self._writer.close()
        self._store.close()
