"""Taking feeds: lease, recovery from the log, a core that goes on from there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from feeds.domain.feed_settings import FeedSettings, FeedSettingsError, feed_settings
from feeds.domain.gateway_core import GatewayCore
from feeds.ports import FeedRow, FeedStore, TakenFeed
from feeds.recovery import Checkpoint, Opening, read_checkpoint, recover
from ports.clock import Clock
from ports.message_log import LogReader, LogWriter

log = structlog.get_logger()


@dataclass(slots=True)
class FeedOpener:
    """Opens feeds over one log. `refused` holds those that can't be opened, with the reason; the others go on."""

    store: FeedStore
    writer: LogWriter
    prices: LogReader
    prices_topic: str
    clock: Clock
    refused: dict[str, str] = field(default_factory=dict)

    def open(self, rows: Iterable[FeedRow], start: Mapping[str, int]) -> dict[str, GatewayCore | None]:
        """A core for each feed that is served now; None: another gateway was faster.

        start: where the source is; there a feed begins that never had a gateway. Raises LogError, StoreAwayError.
        """
        settings = self._check(rows)
        if not settings:
            return {}
        first = _first_checkpoints(start, self.prices.end_offsets(self.prices_topic), settings.values())
        taken: dict[str, TakenFeed] = {}
        for feed in settings:
            found = self.store.take_lease(feed, first[feed])
            if found is not None:
                taken[feed] = found
        openings = [
            Opening(feed, found.row.buckets, found.row.lease, read_checkpoint(feed, found.checkpoint))
            for feed, found in taken.items()
        ]
        recovered = recover(openings, self.writer, self.prices, self.prices_topic)
        cores: dict[str, GatewayCore | None] = dict.fromkeys(taken)
        for feed, known in recovered.items():
            instruments = self.store.list_instruments(feed)
            lease = taken[feed].row.lease
            now = {"wall_ms": self.clock.wall_ms(), "monotonic_ms": self.clock.monotonic_ms()}
            cores[feed] = GatewayCore(settings[feed], lease, instruments, known, **now)
            log.info("feed opened", feed=feed, lease=lease, instruments=len(instruments))
        return cores

    def _check(self, rows: Iterable[FeedRow]) -> dict[str, FeedSettings]:
        settings = {}
        for row in rows:
            try:
                settings[row.feed] = feed_settings(row.feed, row.buckets, row.clock_mode, row.settings)
                self.refused.pop(row.feed, None)
            except FeedSettingsError as error:
                if self.refused.get(row.feed) != str(error):
                    log.error("feed not opened", feed=row.feed, error=str(error))
                self.refused[row.feed] = str(error)
        return settings


def _first_checkpoints(
    start: Mapping[str, int], ends: Mapping[int, int], feeds: Iterable[FeedSettings]
) -> dict[str, str]:
    """Of feeds that never had a gateway: nothing of them lies before the log's present ends."""
    checkpoints = {}
    for feed in feeds:
        positions = {bucket: dict(start) for bucket in range(feed.buckets)} if start else {}
        checkpoints[feed.feed] = Checkpoint(offsets=dict(ends), positions=positions).model_dump_json()
    return checkpoints
