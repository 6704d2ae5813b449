"""What an audit says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise. `invariant`: I1 to I6 of FAULTS, or the part whose output is wrong."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"
