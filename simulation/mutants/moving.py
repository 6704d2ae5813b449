"""Mutants of reshards and rebuilds; they live in plans that have some."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from contracts import frames_pb2 as pb
from finalizer.resharder import Resharder
from finalizer.shard_ports import Phase
from flink_jobs.domain.routes import Routes
from flink_jobs.domain.shard_protocols import ShardProtocols
from flink_jobs.domain.threshold_index import ThresholdIndex
from simulation.database import alert_store
from simulation.database import finalizer_store as store
from simulation.database.reshard_store import MemoryReshardWork
from simulation.mutants.mutant import Mutant, changed, skipped, swapped
from simulation.plans import MOVING_EVERY
from simulation.staged_plan import make_staged_plan


def _new_shards_decide(right: Any) -> Any:
    """A claim passes as one of the shard that its alert is in."""

    def apply(database: Any, tx: Any, given: Any, finalized_at_ms: int) -> Any:
        rows = {claim.candidate.alert_id: tx.find(database.alerts, claim.candidate.alert_id) for claim in given}
        there = [replace(c, shard=row["shard"]) for c in given if (row := rows[c.candidate.alert_id]) is not None]
        return right(database, tx, there, finalized_at_ms)

    return apply


def _one_holder(right: Any) -> Any:
    return lambda database, tx, alerts: right(database, tx, [{**row, "moving_to": None} for row in alerts])


def _nobody_left(right: Any) -> Any:
    """The walk's end is the copying's end, whoever has acknowledged."""

    def copy(self: Any, work: Any) -> bool:
        self._walk(work.reshard).left = 0
        return bool(right(self, work))

    return copy


def _ends_early(right: Any) -> Any:
    """Rolling stops writing to the old shards at OPEN; END comes to them all the same."""

    def shards(self: Routes, symbol: str) -> list[str]:
        route = self.of.get(symbol)
        if route is None or not route.previous_shards:
            return list(right(self, symbol))
        with_old = list(right(self, symbol))
        return with_old[route.previous_shards :]

    return shards


def _any_version(right: Any) -> Any:
    def routing(self: ShardProtocols, given: pb.Routing) -> Any:
        self.moved.clear()
        return right(self, given)

    return routing


def _phase_unawaited(phase: Phase) -> Any:
    def make(right: Any) -> Any:
        return lambda self, work, record, shards: work.reshard.phase is phase or right(self, work, record, shards)

    return make


def _resumed_where_it_was(right: Any) -> Any:
    """The routing of now is not looked at."""

    class Old:
        def __init__(self, shard: str) -> None:
            self._shard = shard

        def shard_of(self, alert_id: int) -> str:
            return self._shard

    def resume(database: Any, tx: Any, owner_id: int, alert_id: int, from_statuses: Any) -> Any:
        def lock(right: Any) -> Any:
            def routes(database: Any, by: Any, symbols: Any) -> Any:
                if by is not tx:
                    return right(database, by, symbols)
                return dict.fromkeys(symbols, Old(tx.find(database.alerts, alert_id)["shard"]))

            return routes

        with swapped(alert_store, "lock_routes", lock):
            return right(database, tx, owner_id, alert_id, from_statuses)

    return resume


_ALL: Final = (
    Mutant("claims-not-parked", "claims of new shards are dropped", skipped(store, "park")),
    Mutant("parked-forgotten", "the switch forgets parked claims", skipped(MemoryReshardWork, "_take_parked", [])),
    Mutant(
        "new-shards-decide", "claims of new shards decide at once", changed(store, "apply_claims", _new_shards_decide)
    ),
    Mutant("expires-on-the-way", "moving alerts expire by their old shard alone", skipped(store, "is_held", False)),
    Mutant(
        "ends-unacknowledged", "END is sent before the new shards have it", changed(Resharder, "_copy", _nobody_left)
    ),
    Mutant(
        "removed-from-one",
        "an end removes the rule from the old shard alone",
        changed(store, "write_removes", _one_holder),
    ),
    Mutant(
        "opens-unawaited",
        "creates go to shards that get no ticks yet",
        changed(Resharder, "_are_marked", _phase_unawaited(Phase.OPENING)),
    ),
    Mutant(
        "switches-unawaited",
        "the switch does not wait for END's marks",
        changed(Resharder, "_are_marked", _phase_unawaited(Phase.ENDING)),
    ),
    Mutant("metrics-end-early", "the old shards' metrics end at OPEN", changed(Routes, "shards", _ends_early)),
    Mutant("ends-again", "a repeated END ends a later life", changed(ShardProtocols, "routing", _any_version)),
    Mutant(
        "rules-stay-behind",
        "old shards keep the rules",
        changed(
            ThresholdIndex, "drop", lambda right: lambda self, ranges, names, **given: right(self, [], names, **given)
        ),
    ),
    Mutant(
        "resumed-where-it-was",
        "a resume installs into shards that the symbol has left",
        changed(alert_store, "resume_alert", _resumed_where_it_was),
    ),
    Mutant(
        "fired-comes-back",
        "a rule that fired since the begin is missing to a rebuild",
        skipped(ShardProtocols, "fired"),
    ),
    Mutant("acknowledged-by-nobody", "acknowledgements are lost", skipped(store, "acknowledge_moves")),
)

# What only a shard that has fallen behind shows, in the middle of a move.
_STAGED: Final = frozenset({"switches-unawaited"})
MOVING: Final = tuple(
    replace(mutant, plan_of=make_staged_plan) if mutant.name in _STAGED else replace(mutant, step=MOVING_EVERY)
    for mutant in _ALL
)
