"""What matchers report of a rebuild, summed up for a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from contracts.frames_pb2 import Difference, RebuildMark
from finalizer.domain.batch import RebuildMarked


@dataclass(slots=True)
class RebuildReport:
    """Of one rebuild. `reported`: pages. `differences`: {"kind", "alert_id", "version", "found_version"} each."""

    rebuild_id: int
    shard: str
    begun: bool = False
    ended: bool = False
    reported: int = 0
    known: int = 0
    missing: int = 0
    other_version: int = 0
    surplus: int = 0
    differences: list[dict[str, Any]] = field(default_factory=list)

    def add(self, mark: RebuildMark) -> None:
        """One command's answer."""
        self.begun = self.begun or mark.step == RebuildMark.BEGUN
        self.ended = self.ended or mark.step == RebuildMark.ENDED
        self.reported += mark.step == RebuildMark.ASSERTED
        self.known += mark.known
        self.missing += mark.missing
        self.other_version += mark.other_version
        self.surplus += mark.surplus
        self.differences += map(_shown, mark.differences)


def _shown(difference: Difference) -> dict[str, Any]:
    return {
        "kind": Difference.Kind.Name(difference.kind) if difference.kind in Difference.Kind.values() else "OTHER",
        "alert_id": difference.alert_id,
        "version": difference.version,
        "found_version": difference.found_version,
    }


def summed(marks: Iterable[RebuildMarked]) -> list[RebuildReport]:
    """One report for each rebuild and shard."""
    reports: dict[tuple[int, str], RebuildReport] = {}
    for marked in marks:
        key = marked.mark.rebuild_id, marked.shard
        reports.setdefault(key, RebuildReport(*key)).add(marked.mark)
    return list(reports.values())
