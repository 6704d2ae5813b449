"""Who asks: always from the key, never from the request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ALERTS_SCOPE: Final = "alerts"
ADMIN_SCOPE: Final = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """The owner of a verified key and what the key may do."""

    owner_id: int
    key_id: str
    scopes: frozenset[str]

    @property
    def admin(self) -> bool:
        return ADMIN_SCOPE in self.scopes
