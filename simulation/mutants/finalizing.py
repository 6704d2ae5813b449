"""Mutants of consumer and sweeper, and of their statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from contracts.numbering import Judgement, LastNumber, Reading
from finalizer.domain import batch
from finalizer.sweeper import MAX_ALERTS_A_TRANSACTION, MAX_SHARDS_A_STEP, Sweeper
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.threshold_index import ThresholdIndex
from simulation.database import claims, positions
from simulation.database import finalizer_store as store
from simulation.database.schema import LIVE_STATUSES
from simulation.mutants.mutant import Mutant, Without, careless, changed, skipped, swapped

FOR_EVER: Final = 1 << 62
Judge = Callable[[LastNumber, int, int, int], Judgement]


def judging(rule: Judge) -> Callable[[Any], Any]:
    """A reader that follows another rule."""

    class Careless(LastNumber):
        def judge(self, epoch: int, first_number: int, count: int) -> Judgement:
            return rule(LastNumber(self.epoch, self.number), epoch, first_number, count)

    return lambda _: Careless


def through_gaps(last: LastNumber, epoch: int, first: int, count: int) -> Judgement:
    """What is missing is passed over."""
    judged = last.judge(epoch, first, count)
    if judged.reading is Reading.GAP:
        return Judgement(Reading.APPLY, 0, LastNumber(epoch, first + count - 1))
    return judged


def any_epoch(last: LastNumber, epoch: int, first: int, count: int) -> Judgement:
    """Numbers are compared, epochs are not."""
    judged = LastNumber(1, last.number).judge(1, first, count)
    return replace(judged, last=LastNumber(epoch, judged.last.number))


def every_repeat(last: LastNumber, epoch: int, first: int, count: int) -> Judgement:
    """What was applied is applied again."""
    judged = last.judge(epoch, first, count)
    if epoch == last.epoch and count and judged.reading in (Reading.APPLY, Reading.KNOWN):
        return Judgement(Reading.APPLY, 0, LastNumber(epoch, max(last.number, first + count - 1)))
    return judged


@contextmanager
def _any_evidence() -> Iterator[None]:
    """A rule stays in the index after its claim, and of a batch's claims the last one is written."""

    def apply(right: Any) -> Any:
        def latest(entry: Any, progress: Any, plan: Any, activated: Any, claimed: Any) -> Any:
            if entry.WhichOneof("kind") == "candidate":
                key = entry.candidate.alert_id, entry.candidate.version
                plan.claims = [c for c in plan.claims if (c.candidate.alert_id, c.candidate.version) != key]
                claimed.discard((progress.shard, *key))
            return right(entry, progress, plan, activated, claimed)

        return latest

    with ExitStack() as broken:
        broken.enter_context(swapped(ThresholdIndex, "kill", lambda right: lambda *_: None))
        broken.enter_context(swapped(batch, "_apply", apply))
        yield


@contextmanager
def _spent_on_refusal() -> Iterator[None]:
    """The matcher claims outside a rule's lifetime, and a refused claim's rule is not installed again."""

    def install(right: Any) -> Any:
        return lambda self, rule: right(self, (*rule[:5], 0, FOR_EVER))

    with ExitStack() as broken:
        broken.enter_context(swapped(ThresholdIndex, "install", install))
        broken.enter_context(swapped(claims, "refuse_claims", lambda right: lambda *_: []))
        yield


def _claims_wait(right: Any) -> Any:
    """The matcher gives a record's claims out with the next record's entries, its frontiers at once."""

    def entries(self: MatcherCore, *given: Any) -> Iterator[Any]:
        waiting = _LATE.setdefault(self, [])
        late, waiting[:] = list(waiting), []
        for entry in right(self, *given):
            if entry[0].HasField("candidate"):
                waiting.append(entry)
            else:
                yield entry
        yield from late

    return entries


_LATE: WeakKeyDictionary[MatcherCore, list[Any]] = WeakKeyDictionary()


def _of_any_version(right: Any) -> Any:
    """The claim or activation passes as one of the alert's present version."""

    def statement(database: Any, tx: Any, given: Any, *rest: Any) -> Any:
        def present(alert_id: int, version: int) -> int:
            row = tx.find(database.alerts, alert_id)
            return version if row is None else int(row["version"])

        passed = []
        for one in given:
            if hasattr(one, "candidate"):
                candidate = type(one.candidate)()
                candidate.CopyFrom(one.candidate)
                candidate.version = present(candidate.alert_id, candidate.version)
                passed.append(replace(one, candidate=candidate))
            else:
                passed.append(replace(one, version=present(one.alert_id, one.version)))
        return right(database, tx, passed, *rest)

    return statement


def _any_live_status(right: Any) -> Any:
    return lambda row, shard, frontier_ms: (
        row["shard"] == shard and row["expires_at_ms"] <= frontier_ms + 60_000 and row["status"] in LIVE_STATUSES
    )


def _by_wall_clock(right: Any) -> Any:
    """Expiry runs ahead of what is finalized."""

    def step(self: Sweeper) -> bool:
        due = self._store.shards_due(MAX_SHARDS_A_STEP)
        ended = [
            self._store.expire(shard, frontier_ms + 30_000, MAX_ALERTS_A_TRANSACTION, self._clock.wall_ms())
            for shard, frontier_ms in due
        ]
        return any(ended)

    return step


def _positions_first(right: Any) -> Any:
    """A batch's positions are committed before its work."""

    @contextmanager
    def advance(self: Any, moves: Any) -> Iterator[Any]:
        with self._database.transaction() as tx:
            positions.move_positions(self._database, tx, moves)
        with self._database.transaction() as tx:
            yield store.MemoryWork(self._database, tx)

    return advance


def _last_frontier(right: Any) -> Any:
    """The frontier goes back when an older one comes again."""

    def apply(entry: Any, progress: Any, plan: Any, activated: Any, claimed: Any) -> Any:
        after = right(entry, progress, plan, activated, claimed)
        return replace(after, frontier_ms=entry.frontier.frontier_ms) if entry.HasField("frontier") else after

    return apply


FINALIZING: Final = (
    Mutant("arbitrary-evidence", "of several claims of one alert in a batch the last is written", _any_evidence),
    Mutant(
        "reader-passes-gaps",
        "the finalizer goes on behind missing numbers",
        changed(batch, "LastNumber", judging(through_gaps)),
    ),
    Mutant(
        "reader-ignores-epochs",
        "the finalizer compares numbers of different epochs",
        changed(batch, "LastNumber", judging(any_epoch)),
    ),
    Mutant(
        "frontier-before-claims",
        "a frontier reaches the finalizer before the claims in front of it",
        changed(MatcherCore, "_metric_entries", _claims_wait),
    ),
    Mutant(
        "frontier-goes-back", "the frontier follows whatever was read last", changed(batch, "_apply", _last_frontier)
    ),
    Mutant(
        "trigger-any-status",
        "TRIGGERED without looking at the status",
        careless(claims, "trigger_alerts", status="ACTIVE", active_from_event_time_ms=0),
    ),
    Mutant(
        "trigger-any-version",
        "a claim of an earlier activation triggers",
        changed(claims, "trigger_alerts", _of_any_version),
    ),
    Mutant(
        "trigger-without-outbox",
        "TRIGGERED is committed without its outbox row",
        changed(claims, "trigger_alerts", lambda right: Without("triggers", right)),
    ),
    Mutant("rule-spent-on-refusal", "a refused claim's rule is gone, its alert stays ACTIVE", _spent_on_refusal),
    Mutant(
        "activate-any-version",
        "an activation of an earlier version makes an alert ACTIVE",
        changed(store, "activate_alerts", _of_any_version),
    ),
    Mutant(
        "activate-any-status",
        "an activation revives whatever it finds",
        careless(store, "activate_alerts", status="PENDING"),
    ),
    Mutant("activations-lost", "activations are not applied", skipped(store, "activate_alerts", 0)),
    Mutant(
        "positions-before-work",
        "positions are committed before the work",
        changed(store.MemoryFinalizerStore, "advance", _positions_first),
    ),
    Mutant("places-kept", "an ended alert keeps its place in the quota", skipped(store, "release_ended")),
    Mutant("expires-early", "alerts expire a minute before the frontier", changed(store, "_is_due", _any_live_status)),
    Mutant(
        "sweeper-runs-ahead", "expiry does not wait for what is finalized", changed(Sweeper, "step", _by_wall_clock)
    ),
    Mutant(
        "expire-without-command",
        "an expired alert's rule stays in the index",
        changed(store, "expire_alerts", lambda right: Without("rule_commands", right)),
    ),
    Mutant("sweep-cursor-blind", "nobody looks behind the sweep's cursor", skipped(store, "live_behind", False)),
)
