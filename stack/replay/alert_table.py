"""Alerts in memory, moved by the finalizer's own plan and transition table: what Postgres does, without Postgres."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts.frames_pb2 import Candidate, Command, CommandFrame, CreateRule, Kind, RemoveRule, Rule, ShardLogRecord
from contracts.prices import format_price
from contracts.vocabulary import Status
from finalizer.domain.batch import Activated, BatchPlan, Claim, ShardProgress
from finalizer.domain.lifecycle import Event, may

COMMAND_EPOCH: Final = 1


@dataclass(slots=True)
class StoredAlert:
    """One alert; `evidence` is there when it is TRIGGERED."""

    name: str
    shard: str
    rule: Rule
    decimals: int
    status: Status = Status.PENDING
    active_from_ms: int = 0
    evidence: Candidate | None = None


class AlertTable:
    """Commands come out numbered, as the rule relay would publish them: `take_commands`."""

    def __init__(self) -> None:
        self._alerts: dict[int, StoredAlert] = {}
        self._of_name: dict[str, StoredAlert] = {}
        self._numbers: dict[str, int] = {}
        self._commands: list[tuple[str, bytes]] = []
        self.progress: dict[str, ShardProgress] = {}

    def create(self, alert: StoredAlert) -> None:
        """PENDING, with its create command."""
        self._alerts[alert.rule.alert_id] = alert
        self._of_name[alert.name] = alert
        self._command(alert, Command(create=CreateRule(rule=alert.rule)))

    def cancel(self, name: str) -> None:
        """Ends a live alert; any other stays as it is."""
        self._move(self._of_name[name], Event.CANCEL)

    def status(self, name: str) -> Status:
        return self._of_name[name].status

    def next_id(self) -> int:
        return len(self._alerts) + 1

    def apply(self, plan: BatchPlan) -> None:
        """One finalized batch, then the expiries behind its frontiers."""
        for activated in plan.activations:
            self._activate(activated)
        for claim in plan.claims:
            self._claim(claim)
        for progress in plan.progress:
            self.progress[progress.shard] = progress
            self._expire(progress)

    def take_commands(self) -> list[tuple[str, bytes]]:
        """(shard, serialized ShardLogRecord) of what was not taken yet."""
        taken, self._commands = self._commands, []
        return taken

    def rows(self) -> Iterator[dict[str, Any]]:
        """Result rows in the order of creation."""
        for alert in self._alerts.values():
            evidence = {} if alert.evidence is None else render_evidence(alert.evidence, alert.rule, alert.decimals)
            yield {"id": alert.name, "status": alert.status.value, **evidence}

    def _activate(self, activated: Activated) -> None:
        alert = self._alerts[activated.alert_id]
        if activated.version == alert.rule.version and self._move(alert, Event.ACTIVATE):
            alert.active_from_ms = activated.active_from_event_time_ms

    def _claim(self, claim: Claim) -> None:
        candidate = claim.candidate
        alert = self._alerts[candidate.alert_id]
        if alert.status is not Status.ACTIVE or candidate.version != alert.rule.version:
            return
        if alert.active_from_ms <= candidate.event_time_ms < alert.rule.expires_at_ms:
            alert.evidence = candidate
            self._move(alert, Event.TRIGGER)
            return
        alert.status = Status.PENDING
        alert.rule.version += 1
        self._command(alert, Command(create=CreateRule(rule=alert.rule)))

    def _expire(self, progress: ShardProgress) -> None:
        for alert in self._alerts.values():
            if alert.shard == progress.shard and alert.rule.expires_at_ms <= progress.frontier_ms:
                self._move(alert, Event.EXPIRE)

    def _move(self, alert: StoredAlert, event: Event) -> bool:
        after = may(alert.status, event)
        if after is None:
            return False
        alert.status = after
        if after in (Status.TRIGGERED, Status.CANCELLED, Status.EXPIRED):
            self._command(alert, Command(remove=RemoveRule(rule=alert.rule)))
        return True

    def _command(self, alert: StoredAlert, command: Command) -> None:
        number = self._numbers[alert.shard] = self._numbers.get(alert.shard, 0) + 1
        frame = CommandFrame(shard=alert.shard, epoch=COMMAND_EPOCH, first_number=number, commands=[command])
        self._commands.append((alert.shard, ShardLogRecord(commands=frame).SerializeToString()))


def render_evidence(candidate: Candidate, rule: Rule, decimals: int) -> Mapping[str, Any]:
    """The fields of a result row for a candidate that triggered."""
    evidence: dict[str, Any] = {
        "event_time": candidate.event_time_ms,
        "seq": candidate.sequence or None,
        "price": format_price(candidate.price_scaled, decimals),
    }
    if rule.kind == Kind.CHANGE:
        evidence |= {
            "reference_ts": candidate.reference_time_ms,
            "reference_price": format_price(candidate.reference_price_scaled, decimals),
            "previous_bps": candidate.previous_bps,
            "current_bps": candidate.current_bps,
        }
    return evidence
