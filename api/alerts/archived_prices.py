"""The two prices of a trigger as the price archive has them."""

from __future__ import annotations

from pathlib import Path

from api.alerts.evidence_check import Prices
from contracts.trigger import Evidence
from feeds.archive.reader import ArchiveBusyError, ArchiveReader


class ArchivedPrices:
    """Read-only, over the archive's folder; None: this API has no archive."""

    def __init__(self, folder: Path | None) -> None:
        self._reader = ArchiveReader(folder) if folder is not None else None

    def find(
        self, feed: str, buckets: int, symbol: str, evidence: Evidence, stored: Prices
    ) -> tuple[Prices | None, str]:
        """(the prices, "") or (None, why not). Of several prices of one time the stored one, if it is there."""
        if self._reader is None:
            return None, "This API has no price archive."
        before_ms = evidence.reference_time_ms or evidence.previous_event_time_ms or 0
        found = []
        for time_ms, price in ((evidence.event_time_ms, stored.price), (before_ms, stored.before)):
            try:
                ticks = self._reader.ticks(feed, buckets, symbol, time_ms, time_ms + 1)
            except ArchiveBusyError:
                return None, "The price archive is being merged; ask again."
            prices = [int(p) for p in ticks.price_scaled]
            if not prices:
                return None, "The price archive does not have both prices (yet)."
            found.append(price if price in prices else prices[-1])
        return Prices(found[0], found[1]), ""
