"""One feed's settings, as an operator stores them, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts.vocabulary import DAY_MS, DEFAULT_REORDER_MS

LIVE: Final = "live"
REPLAY: Final = "replay"
MAX_FRAME_ROWS: Final = 65_535  # a frame's symbol index is a u2
DEFAULT_AHEAD_OF_CLOCK_MS: Final = 10_000
MAX_STORED_MS: Final = (1 << 62) - 1  # what `sql/reference_store.py` lets an operator store
_LIMITS: Final[dict[str, tuple[int, int]]] = {
    "reorder_ms": (0, MAX_STORED_MS),
    "heartbeat_bound_ms": (0, DAY_MS),
    "ahead_of_clock_ms": (0, DAY_MS),
    "max_ahead_ms": (0, MAX_STORED_MS),
    "frame_age_ms": (0, 10_000),
    "frame_rows": (1, MAX_FRAME_ROWS),
    "catching_up_frame_age_ms": (0, 10_000),
    "catching_up_frame_rows": (1, MAX_FRAME_ROWS),
}


class FeedSettingsError(ValueError):
    """A setting of a feed that can't be used; names the feed, the setting and what is allowed."""

    def __init__(self, feed: str, setting: str, problem: str) -> None:
        super().__init__(f"feed {feed}, setting {setting}: {problem}")
        self.feed, self.setting, self.problem = feed, setting, problem


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """What a gateway needs to know of a feed. Other names in `feeds.settings` (JSON) are other parts' business."""

    feed: str
    buckets: int
    live: bool
    reorder_ms: int = DEFAULT_REORDER_MS
    heartbeat_bound_ms: int = 0  # live: how far behind the newest event time the frontier stays; at least reorder_ms
    ahead_of_clock_ms: int = DEFAULT_AHEAD_OF_CLOCK_MS  # live: a tick further ahead of the gateway's clock is refused
    max_ahead_ms: int = 0  # the rolling job's bound, here only for record timestamps; 0: none
    frame_age_ms: int = 50
    frame_rows: int = 1_024
    catching_up_frame_age_ms: int = 200
    catching_up_frame_rows: int = 8_192


def feed_settings(feed: str, buckets: int, clock_mode: str, stored: Mapping[str, Any]) -> FeedSettings:
    """Check a row of `feeds`. Raises FeedSettingsError."""
    if clock_mode not in (LIVE, REPLAY):
        raise FeedSettingsError(feed, "clock_mode", f"{clock_mode!r} is neither {LIVE} nor {REPLAY}")
    known: dict[str, int] = {}
    for name, (least, most) in _LIMITS.items():
        if name not in stored:
            continue
        value = stored[name]
        if type(value) is not int or not least <= value <= most:
            raise FeedSettingsError(feed, name, f"{value!r} is no whole number from {least} to {most}")
        known[name] = value
    return FeedSettings(feed, buckets, clock_mode == LIVE, **known)
