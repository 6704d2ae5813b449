"""When a failed delivery is tried again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

# Rests after the first, second, … try: a hiccup is over in seconds, an outage by the next day.
DEFAULT_RETRY_SECONDS: Final = (2.0, 10.0, 60.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 36_000.0)
JITTER: Final = 0.2  # up to so much longer, so that what failed together doesn't come back together


def rest_seconds(
    attempts: int, wished_seconds: float | None, schedule: Sequence[float], random: Callable[[], float]
) -> float | None:
    """Seconds until the next try after `attempts` tries; None when the schedule is used up.

    wished_seconds: what the receiver asked for, which is never undercut. random: uniform in [0, 1).
    """
    if attempts > len(schedule):
        return None
    rest = schedule[attempts - 1] * (1 + JITTER * random())
    return max(rest, wished_seconds or 0.0)
