"""What the database has committed, in order: of alerts their states, of the log how far it is finalized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.database.engine import MemoryDatabase

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AlertState:
    """From this commit on."""

    commit: int
    status: str
    version: int
    frontier_ms: int  # of its shard, finalized
    shard: str
    moving_to: str | None


@dataclass
class History:
    """`states`: per alert; `passed`: topic and partition -> (commit, next offset)."""

    states: dict[int, list[AlertState]] = field(default_factory=dict)
    passed: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)
    changes: int = 0  # of anything but a gateway's checkpoints
    illegal: list[str] = field(default_factory=list)  # what a row must not do
    _frontiers: dict[str, int] = field(default_factory=dict)

    def watch(self, database: MemoryDatabase) -> None:
        """From now on. A commit's number is the database's."""
        self._database = database
        database.on_change = self._changed

    def _changed(self, table: str, before: Row | None, after: Row) -> None:
        commit = self._database.commits
        self.changes += table != "feeds"
        if table == "shard_progress":
            before_ms, self._frontiers[after["shard"]] = self._frontiers.get(after["shard"], 0), after["frontier_ms"]
            if after["frontier_ms"] < before_ms:
                self.illegal.append(f"{after['shard']}: the frontier went back from {before_ms}")
        elif table == "alerts":
            frontier_ms = self._frontiers.get(after["shard"], 0)
            places = after["shard"], after["moving_to"]
            state = AlertState(commit, after["status"], after["version"], frontier_ms, *places)
            self.states.setdefault(after["alert_id"], []).append(state)
        elif table == "consumer_positions":
            key = after["topic"], after["partition"]
            self.passed.setdefault(key, []).append((commit, after["next_offset"]))
        elif table == "deliveries" and before is not None and before["status"] in ("DELIVERED", "DEAD"):
            self.illegal.append(f"{after['trigger_id']}: {before['status']} became {after['status']}")

    def commit_that_passed(self, topic: str, partition: int, offset: int) -> int | None:
        """The commit that finalized a record."""
        return next((commit for commit, after in self.passed.get((topic, partition), ()) if after > offset), None)

    def state_before(self, alert_id: int, commit: int) -> AlertState | None:
        """What the alert was just before a commit."""
        earlier = [state for state in self.states.get(alert_id, ()) if state.commit < commit]
        return earlier[-1] if earlier else None
