"""Mutants of the matcher."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from flink_jobs.domain import frame_queries, matcher
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.rule_commands import RuleBook
from flink_jobs.domain.threshold_index import ThresholdIndex
from flink_jobs.domain.tick_times import TickTimes
from simulation.mutants.finalizing import FOR_EVER, every_repeat, judging, through_gaps
from simulation.mutants.mutant import Mutant, changed, skipped
from simulation.plan import FaultKind, Role


def _closed_below(right: Any) -> Any:
    """previous <= threshold < current: a threshold that the previous change had reached already fires again."""

    def queries(*given: Any) -> Any:
        tick, rank, change, base, lowest, highest = right(*given)
        return tick, rank, change, base, lowest - 1, highest - 1

    return queries


def _half_of_it(right: Any) -> Any:
    """Only rising changes are looked at."""

    def queries(*given: Any) -> Any:
        found = right(*given)
        return tuple(column[found[1] % 2 == 0] for column in found)

    return queries


def _lifetime(**columns: Any) -> Any:
    """Rules are installed with other lifetimes."""

    def make(right: Any) -> Any:
        def install(self: Any, rule: Any) -> None:
            right(self, (*rule[:5], columns.get("active_from_ms", rule[5]), rule[6] + columns.get("longer_ms", 0)))

        return install

    return make


def _no_either(right: Any) -> Any:
    return lambda frame, numbers, symbols, ticks, with_either: right(frame, numbers, symbols, ticks, False)


def _first_rule_only(right: Any) -> Any:
    """Of the rules that one move crosses, only the first is claimed."""

    def crossed(self: Any, parts: Any, event_time_ms: int) -> Any:
        return iter(list(right(self, parts, event_time_ms))[:1])

    return crossed


def _stays_installed(right: Any) -> Any:
    """A removed rule stays in the index."""

    def remove(self: Any, rule: Any, newest_ms: int) -> None:
        self.tombstones.bury(rule.alert_id, rule.version, newest_ms)

    return remove


def _heartbeats_lost(right: Any) -> Any:
    def control(self: Any, control: Any, entry: Any, epoch: int, number: int) -> Any:
        if control.WhichOneof("kind") != "heartbeat" or number % 3:
            yield from right(self, control, entry, epoch, number)

    return control


def _previous_of_any_split(right: Any) -> Any:
    """The price before a split is compared as it was printed."""

    def queries(frame: Any, numbers: Any, symbols: Any, ticks: Any) -> Any:
        has_splits, symbols.has_splits = symbols.has_splits, np.zeros_like(symbols.has_splits)
        try:
            return right(frame, numbers, symbols, ticks)
        finally:
            symbols.has_splits = has_splits

    return queries


MATCHING: Final = (
    Mutant(
        "interval-closed-below",
        "a threshold reached before is crossed again",
        changed(frame_queries, "_change_queries", _closed_below),
    ),
    Mutant("falls-unseen", "falling changes cross nothing", changed(frame_queries, "_change_queries", _half_of_it)),
    Mutant("either-unseen", "EITHER rules are never looked at", changed(matcher, "queries_of", _no_either)),
    Mutant(
        "one-claim-a-move",
        "of the rules that a move crosses one is claimed",
        changed(ThresholdIndex, "crossed", _first_rule_only),
    ),
    Mutant(
        "active-from-ignored",
        "a rule fires on prices from before its creation",
        changed(ThresholdIndex, "install", _lifetime(active_from_ms=0)),
    ),
    Mutant(
        "expiry-ignored",
        "a rule is claimed after its end, and the claim is lost",
        changed(ThresholdIndex, "install", _lifetime(longer_ms=FOR_EVER // 2)),
    ),
    Mutant("splits-unlearnt", "targets keep their old share basis", skipped(RuleBook, "split")),
    Mutant(
        "split-price-as-printed",
        "the price before a split is compared as printed",
        changed(frame_queries, "_price_queries", _previous_of_any_split),
    ),
    Mutant("removed-stays", "a removed rule stays in the index", changed(RuleBook, "remove", _stays_installed)),
    Mutant(
        "matcher-passes-gaps",
        "the matcher goes on behind missing numbers",
        changed(matcher, "LastNumber", judging(through_gaps)),
        needs=(FaultKind.LOG_HOLE, Role.ROLLING),
    ),
    Mutant(
        "matcher-takes-repeats",
        "the matcher applies entries again",
        changed(matcher, "LastNumber", judging(every_repeat)),
    ),
    Mutant(
        "heartbeats-lost",
        "some frontiers don't reach the finalizer",
        changed(MatcherCore, "_control", _heartbeats_lost),
    ),
    Mutant(
        "journal-not-written",
        "a restored matcher lacks what the last records changed",
        changed(MatcherCore, "_write", lambda right: lambda self: None),
    ),
    Mutant(
        "fed-again-fires",
        "ticks that a new metrics epoch feeds again are matched again",
        skipped(TickTimes, "begin_epoch"),
    ),
)
