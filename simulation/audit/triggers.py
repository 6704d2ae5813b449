"""I1 to I3: every state that an alert was in, every trigger and its evidence, against the oracle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from contracts import frames_pb2 as pb
from contracts.topics import CANDIDATES, PRICES, SHARD_LOG
from simulation.audit.finding import Finding
from simulation.audit.judge import BucketJudge, Crossing, Installed, Routed
from simulation.audit.logs import Claimed, PriceEntry, Row, ShardEntry, candidate_entries, price_entries, shard_entries

if TYPE_CHECKING:
    from simulation.history import AlertState
    from simulation.world import World

# From commit to commit: one batch may activate an alert and decide its claim.
Emitted = tuple[int, int, int]  # event time, scaled price, sequence
LEGAL: Final = {
    "PENDING": {"ACTIVE", "CANCELLED", "EXPIRED", "TRIGGERED"},
    "ACTIVE": {"TRIGGERED", "CANCELLED", "EXPIRED", "PAUSED", "PENDING"},
    "PAUSED": {"PENDING", "CANCELLED", "EXPIRED"},
    "TRIGGERED": set[str](),
    "CANCELLED": set[str](),
    "EXPIRED": set[str](),
}
EVIDENCE: Final = {
    "event_time_ms": "event_time", "sequence": "seq", "price": "price", "reference_time_ms": "reference_ts",
    "reference_price": "reference_price", "previous_bps": "previous_bps", "current_bps": "current_bps",
}  # fmt: skip


@dataclass
class Trail:
    """What the logs say: entries and judges per (feed, bucket), rules at their places, crossings, claims."""

    prices: dict[tuple[str, int], list[PriceEntry]] = field(default_factory=dict)
    judges: dict[tuple[str, int], BucketJudge] = field(default_factory=dict)
    installed: list[Installed] = field(default_factory=list)
    crossings: dict[tuple[int, int], Crossing] = field(default_factory=dict)  # (alert, version)
    claims: dict[tuple[int, int], list[Claimed]] = field(default_factory=dict)
    activations: dict[tuple[int, int], list[Claimed]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    told: dict[str, set[int]] = field(default_factory=dict)  # symbol -> ticks that some shard's log has


def follow(world: World) -> Trail:
    """Read the logs of a world at rest."""
    trail = Trail()
    decimals = {symbol: places for feed in world.plan.feeds for symbol, places in feed.symbols.items()}
    trail.prices = price_entries(world.log.memory.records(PRICES.name))
    for bucket, entries in trail.prices.items():
        trail.judges[bucket] = BucketJudge(decimals, entries)
    emitted = {symbol: rows for judge in trail.judges.values() for symbol, rows in judge.emitted.items()}
    routed = {key: at for judge in trail.judges.values() for key, at in judge.routed_at.items()}
    for shard, shard_log in shard_entries(world.log.memory.records(SHARD_LOG.name)).items():
        _Walk(shard, emitted, routed, trail).through(shard_log)
    for judge in trail.judges.values():
        mine = [rule for rule in trail.installed if rule.rule.symbol in judge.emitted]
        for (alert_id, version, _), crossing in judge.crossings(mine).items():
            known = trail.crossings.get((alert_id, version))
            if known is None or crossing.event_time_ms < known.event_time_ms:
                trail.crossings[alert_id, version] = crossing
    for claimed in candidate_entries(world.log.memory.records(CANDIDATES.name)):
        kind = claimed.entry.WhichOneof("kind")
        if kind == "candidate":
            key = claimed.entry.candidate.alert_id, claimed.entry.candidate.version
            trail.claims.setdefault(key, []).append(claimed)
        elif kind == "activation":
            key = claimed.entry.activation.alert_id, claimed.entry.activation.version
            trail.activations.setdefault(key, []).append(claimed)
    return trail


class _Walk:
    """One shard's log: rows must be the oracle's ticks, one after the other; a create lies behind those before it."""

    def __init__(
        self, shard: str, emitted: Mapping[str, Sequence[Emitted]], routed: Mapping[Routed, int], trail: Trail
    ) -> None:
        self._shard, self._emitted, self._routed, self._trail = shard, emitted, routed, trail
        self._at: dict[str, int] = {}  # of the epoch: the next tick
        self._reach: dict[str, int] = {}  # of any epoch
        self._held: dict[int, Installed] = {}
        self._removed: dict[int, int] = {}  # alert -> version
        self._ended: dict[str, int] = {}  # symbol -> routing version
        self._epoch = 0

    def through(self, entries: Sequence[ShardEntry]) -> None:
        for entry in entries:
            if isinstance(entry, pb.Command):
                self._command(entry)
                continue
            epoch, what = entry
            if epoch != self._epoch:
                self._epoch, self._at = epoch, {}
            if isinstance(what, Row):
                self._row(what)
            elif what.HasField("routing"):
                self._routing(what.routing)

    def _routing(self, routing: pb.Routing) -> None:
        """A symbol's ticks begin here at OPEN; at COPY and END all before it are here, and at END its rules leave."""
        symbol = routing.symbol
        place = self._routed.get((symbol, routing.version, routing.phase), 0)
        if routing.phase in (pb.Routing.AT_ONCE, pb.Routing.OPEN):
            self._at[symbol] = place
            self._reach[symbol] = max(self._reach.get(symbol, 0), place)
            return
        here = self._at.get(symbol, 0)
        if here != place:
            phase = pb.Routing.Phase.Name(routing.phase)
            what = f"{self._shard}: {symbol} comes to {phase} at tick {here}, the oracle at {place}"
            self._trail.findings.append(Finding("rolling", what))
        if routing.phase == pb.Routing.END and routing.version > self._ended.get(symbol, 0):
            self._ended[symbol] = routing.version
            for alert_id in [alert_id for alert_id, held in self._held.items() if held.rule.symbol == symbol]:
                self._held.pop(alert_id).end_tick = self._reach.get(symbol, 0)

    def _row(self, row: Row) -> None:
        here = self._at.get(row.symbol, 0)
        rows = self._emitted.get(row.symbol, ())
        told = row.event_time_ms, row.price_scaled, row.sequence
        wanted = rows[here] if here < len(rows) else None
        if told != wanted:
            what = f"{self._shard}: tick {here} of {row.symbol} is {told}, the oracle says {wanted}"
            self._trail.findings.append(Finding("rolling", what))
        self._at[row.symbol] = here + 1
        self._trail.told.setdefault(row.symbol, set()).add(here)
        self._reach[row.symbol] = max(self._reach.get(row.symbol, 0), here + 1)

    def _command(self, command: pb.Command) -> None:
        if not command.HasField("create") and not command.HasField("remove"):
            return  # of a rebuild, which finds nothing to do
        rule = command.create.rule if command.HasField("create") else command.remove.rule
        here = self._reach.get(rule.symbol, 0)
        known = self._held.get(rule.alert_id)
        if command.HasField("remove"):
            self._removed[rule.alert_id] = max(rule.version, self._removed.get(rule.alert_id, 0))
            if known is not None and known.version <= rule.version:
                known.end_tick = here
                del self._held[rule.alert_id]
        elif self._removed.get(rule.alert_id, 0) < rule.version and (known is None or known.version < rule.version):
            if known is not None:
                known.end_tick = here
            self._held[rule.alert_id] = Installed(rule.alert_id, rule.version, self._shard, rule, here)
            self._trail.installed.append(self._held[rule.alert_id])


def audit_ticks(world: World, trail: Trail) -> Iterator[Finding]:
    """Every tick that the oracle emits is in its shard's log, and the counts are the oracle's."""
    yield from trail.findings
    for judge in trail.judges.values():
        for symbol, rows in judge.emitted.items():
            missing = set(range(len(rows))) - trail.told.get(symbol, set())
            if missing:
                yield Finding("rolling", f"{symbol}: ticks {sorted(missing)[:5]} of {len(rows)} are in no shard's log")


def audit_states(world: World, trail: Trail) -> Iterator[Finding]:
    """I1, I2, I3."""
    final = {row["alert_id"]: row for row in world.database.rows("alerts")}
    outbox: dict[int, list[Mapping[str, Any]]] = {}
    for row in world.database.rows("triggers"):
        outbox.setdefault(row["alert_id"], []).append(row)
    for alert_id, states in world.history.states.items():
        yield from _legal(alert_id, states)
        row = final[alert_id]
        rows = outbox.get(alert_id, [])
        if (row["status"] == "TRIGGERED") != (len(rows) == 1) or len(rows) > 1:
            yield Finding("I2", f"alert {alert_id} is {row['status']} with {len(rows)} outbox rows")
        if row["status"] == "TRIGGERED":
            yield from _right_evidence(row, trail)
            if rows and rows[0]["payload"]["evidence"] != row["trigger"]:
                yield Finding("I2", f"alert {alert_id}: outbox and table tell different evidence")
        yield from _nothing_missed(world, row, states, trail)
        yield from _covered(world, alert_id, states, trail)


def _legal(alert_id: int, states: Sequence[AlertState]) -> Iterator[Finding]:
    if states[0].status != "PENDING":
        yield Finding("I1", f"alert {alert_id} began as {states[0].status}")
    for before, after in pairwise(states):
        if after.status != before.status and after.status not in LEGAL[before.status]:
            yield Finding("I1", f"alert {alert_id}: {before.status} became {after.status}")
        raised = after.version - before.version
        if raised != (after.status == "PENDING"):
            yield Finding("I1", f"alert {alert_id}: version {before.version} to {after.version} as {after.status}")


def _covered(world: World, alert_id: int, states: Sequence[AlertState], trail: Trail) -> Iterator[Finding]:
    """ACTIVE only once the matcher has said that it holds this version."""
    for state in states:
        if state.status != "ACTIVE":
            continue
        said = [
            commit
            for claimed in trail.activations.get((alert_id, state.version), ())
            if (commit := world.history.commit_that_passed(CANDIDATES.name, claimed.partition, claimed.offset))
        ]
        if not said or min(said) > state.commit:
            yield Finding("I5", f"alert {alert_id} v{state.version} was ACTIVE before the matcher held it")


def _right_evidence(row: Mapping[str, Any], trail: Trail) -> Iterator[Finding]:
    told, alert_id = row["trigger"], row["alert_id"]
    crossing = trail.crossings.get((alert_id, told["version"]))
    if crossing is None:
        yield Finding("I3", f"alert {alert_id} v{told['version']} triggered, the oracle knows no crossing of it")
        return
    for name, of_oracle in EVIDENCE.items():
        expected, actual = crossing.evidence.get(of_oracle), told.get(name)
        if name.endswith("price") and expected is not None:
            expected, actual = Decimal(str(expected)), Decimal(str(actual))
        if expected != actual:
            yield Finding("I3", f"alert {alert_id}: {name} is {actual}, the oracle says {expected}")


def _deciding_commit(world: World, alert_id: int, shard: str, passed: int) -> int | None:
    """Of a claim: the one that finalized it, or the one that brought its alert to the shard, if it was on the way there
    until then. None: it was not the shard's alert."""
    before = world.history.state_before(alert_id, passed)
    if before is None or before.shard == shard:
        return passed
    if before.moving_to != shard:
        return None
    later = (state for state in world.history.states[alert_id] if state.commit >= passed)
    return next((state.commit for state in later if state.shard == shard), None)


def _decided(
    world: World, row: Mapping[str, Any], states: Sequence[AlertState], version: int, claims: Sequence[Claimed]
) -> Iterator[Finding]:
    """A version that crossed: what became of its claims."""
    alert_id, commits = row["alert_id"], []
    for claimed in claims:
        passed = world.history.commit_that_passed(CANDIDATES.name, claimed.partition, claimed.offset)
        if passed is None:
            yield Finding("I5", f"alert {alert_id} v{version}: its claim is not finalized")
        elif (commit := _deciding_commit(world, alert_id, claimed.shard, passed)) is not None:
            commits.append(commit)
    before = world.history.state_before(alert_id, min(commits)) if commits else None
    if before is not None and before.status == "ACTIVE" and before.version == version:
        if row["status"] != "TRIGGERED" or row["trigger"]["version"] != version:
            yield Finding("I3", f"alert {alert_id} v{version} was ACTIVE when its claim came: {row['status']} now")
    elif row["status"] == "ACTIVE" and row["version"] == version:
        yield Finding("I3", f"alert {alert_id} v{version} crossed and is ACTIVE")
    lived = [state for state in states if state.status != "EXPIRED"]
    if row["status"] == "EXPIRED" and (lived[-1].status, lived[-1].version) == ("ACTIVE", version):
        yield Finding("I3", f"alert {alert_id} v{version} crossed before its end, and is EXPIRED")


def _nothing_missed(
    world: World, row: Mapping[str, Any], states: Sequence[AlertState], trail: Trail
) -> Iterator[Finding]:
    """Each version that was in the index: a crossing must have become its claim, and the claim what it had to."""
    alert_id = row["alert_id"]
    versions = {rule.version for rule in trail.installed if rule.alert_id == alert_id}
    for version in sorted(versions):
        crossing = trail.crossings.get((alert_id, version))
        claims = trail.claims.get((alert_id, version), [])
        if crossing is None:
            if claims:
                yield Finding("I3", f"alert {alert_id} v{version}: a claim, and no crossing")
        elif not claims:
            yield Finding("I3", f"alert {alert_id} v{version} crossed at {crossing.event_time_ms}: no claim")
        else:
            yield from _decided(world, row, states, version, claims)
    if row["status"] == "PENDING":
        yield Finding("I5", f"alert {alert_id} v{row['version']} is still PENDING")
    if row["status"] == "ACTIVE" and row["version"] not in versions:
        yield Finding("I5", f"alert {alert_id} v{row['version']} is ACTIVE and was never installed")
    last = states[-1]
    if last.status == "EXPIRED" and last.frontier_ms < row["expires_at_ms"]:
        yield Finding("I1", f"alert {alert_id} expired at frontier {last.frontier_ms}, before {row['expires_at_ms']}")


def audit_expiry(world: World) -> Iterator[Finding]:
    """At rest nothing lives behind its shard's frontier."""
    frontiers = {row["shard"]: row["frontier_ms"] for row in world.database.rows("shard_progress")}
    for row in world.database.rows("alerts"):
        frontier_ms = frontiers.get(row["shard"], 0)
        if row["status"] in ("PENDING", "ACTIVE", "PAUSED") and row["expires_at_ms"] <= frontier_ms:
            yield Finding("I1", f"alert {row['alert_id']} is {row['status']} behind the frontier {frontier_ms}")
