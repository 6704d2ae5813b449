"""One process for what happens to shards now and then: reshards and rebuilds."""

from __future__ import annotations

from typing import Any

from finalizer.rebuilder import Rebuilder
from finalizer.resharder import Resharder


class ShardUpkeep:
    """Service."""

    def __init__(self, resharder: Resharder, rebuilder: Rebuilder) -> None:
        self._resharder, self._rebuilder = resharder, rebuilder

    def step(self) -> bool:
        """One bounded transaction for each reshard and rebuild under way."""
        moved = self._resharder.step()
        return self._rebuilder.step() or moved

    def detail(self) -> dict[str, Any]:
        return {**self._resharder.detail(), **self._rebuilder.detail()}

    def close(self) -> None: ...
