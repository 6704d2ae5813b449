"""Whose deliveries are claimed when more are due than one look at the ledger shows: owners take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

MAX_SENDS_AN_OWNER: Final = 16  # claims that one owner may hold at once, so that slow receivers hold up their own alone
CROWD_ROWS: Final = 512  # so many due rows are ranked among owners at a look; with more, owners take turns
MAX_OWNERS_A_TURN: Final = 256  # owners looked at for one claim

# (after_owner_id, limit) -> owners above it that have open deliveries, in order; none when there is no crowd
FindOwners = Callable[[int, int], Sequence[int]]


class OwnerTurns:
    """Round by owner_id. Process-local: a restart begins a round anew, which decides nothing but the order."""

    def __init__(self) -> None:
        self._after = 0

    def next_owners(self, find: FindOwners) -> list[int]:
        """The next in turn, at most MAX_OWNERS_A_TURN, each once."""
        owners = list(find(self._after, MAX_OWNERS_A_TURN))
        if self._after and len(owners) < MAX_OWNERS_A_TURN:
            owners += [o for o in find(0, MAX_OWNERS_A_TURN - len(owners)) if o <= self._after]
        return owners

    def go_on(self, owners: Sequence[int], served: Sequence[int], *, full: bool) -> None:
        """After a claim. `served`: owners of the claimed rows; `full`: its limit cut it, the rest comes next."""
        if full:
            self._after = max(served, key=owners.index)
        elif owners:
            self._after = owners[-1]
