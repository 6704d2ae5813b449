"""A live feed's clock: which event times can be true, and how far the feed has passed. One object a feed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HEARTBEAT_INTERVAL_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class SourceState:
    """What a source knows of its connection.

    connection: another number after each reconnect. caught_up_at_ms: the monotonic time at which it last made sure that
    everything there was has been handed over; None while it is not connected, or has more to hand over.
    """

    connection: int
    caught_up_at_ms: int | None


class FeedClock:
    """Moves by what is handed in alone: event times of accepted ticks, and elapsed monotonic time.

    The gateway's own clock is anchored at the wall clock once and moved by monotonic time, so a wall clock that jumps
    changes nothing. The frontier is the newest accepted event time, plus the silence since it came, minus the bound.
    Time counts as silence only between two proofs, over one connection, that nothing was waiting at the source: what an
    outage (or a process that was stopped for a minute) held back is still to come.
    """

    def __init__(self, bound_ms: int, ahead_ms: int, frontier_ms: int, wall_ms: int, monotonic_ms: int) -> None:
        """frontier_ms: the last one promised before (0: none); it is never taken back."""
        self.bound_ms = bound_ms
        self._ahead_ms = ahead_ms
        self._wall_offset_ms = wall_ms - monotonic_ms
        self._frontier_ms = frontier_ms
        self._newest_ms = frontier_ms + bound_ms if frontier_ms else 0
        self._silence_ms = 0
        self._silent_since_ms: int | None = None  # monotonic; silence is counted up to here
        self._connection: int | None = None

    def latest_possible_ms(self, monotonic_ms: int) -> int:
        """A tick beyond this is ahead of the gateway's own clock."""
        return monotonic_ms + self._wall_offset_ms + self._ahead_ms

    def observe(self, source: SourceState) -> None:
        """Tell the connection's state now."""
        proof_ms = source.caught_up_at_ms
        if proof_ms is None or source.connection != self._connection or self._silent_since_ms is None:
            self._silent_since_ms = proof_ms
        elif proof_ms > self._silent_since_ms:
            self._silence_ms += proof_ms - self._silent_since_ms
            self._silent_since_ms = proof_ms
        self._connection = source.connection

    def accept(self, event_time_ms: int, monotonic_ms: int) -> None:
        """An accepted tick. Only one that is newer than all before ends the silence: late ones prove nothing new."""
        if event_time_ms > self._newest_ms:
            self._newest_ms = event_time_ms
            self._silence_ms = 0
            if self._silent_since_ms is not None:
                self._silent_since_ms = monotonic_ms

    def frontier_ms(self) -> int:
        """The promise as of now; 0 before the first accepted tick. Never goes back."""
        if self._newest_ms:
            self._frontier_ms = max(self._frontier_ms, self._newest_ms + self._silence_ms - self.bound_ms)
        return self._frontier_ms
