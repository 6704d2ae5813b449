"""Account of the ticks that a bucket did not emit: totals, and an audit entry for each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from contracts import frames_pb2 as pb

Reason: TypeAlias = pb.AuditEntry.Reason


class Tick(NamedTuple):
    """One tick as the feed sent it; sequence 0: it has none."""

    time_ms: int
    price_scaled: int
    sequence: int
    session: int


@dataclass(slots=True)
class TickAccount:
    """Totals since the bucket began, and the audit of the frame in work."""

    rejected: int = 0
    duplicate: int = 0
    late: int = 0
    audit: list[pb.AuditEntry] = field(default_factory=list)

    def reject(self, symbol: str, tick: Tick, reason: Reason) -> None:
        """Count and audit a rejected tick."""
        self.rejected += 1
        self.note(symbol, tick, reason)

    def repeat(self, symbol: str, tick: Tick) -> None:
        """Count and audit a tick whose sequence is known."""
        self.duplicate += 1
        self.note(symbol, tick, Reason.DUPLICATE_SEQUENCE)

    def miss(self, symbol: str, tick: Tick, reason: Reason) -> None:
        """Count and audit a late tick."""
        self.late += 1
        self.note(symbol, tick, reason)

    def note(self, symbol: str, tick: Tick, reason: Reason) -> None:
        """Audit without counting."""
        self.audit.append(
            pb.AuditEntry(
                symbol=symbol, event_time_ms=tick.time_ms, price_scaled=tick.price_scaled, sequence=tick.sequence,
                session=tick.session, reason=reason,
            )
        )  # fmt: skip

    def take_audit(self) -> list[pb.AuditEntry]:
        """The audit so far; the next begins empty."""
        taken, self.audit = self.audit, []
        return taken

    def totals(self) -> pb.Counts:
        """The totals as they travel."""
        return pb.Counts(rejected=self.rejected, duplicate=self.duplicate, late=self.late)
