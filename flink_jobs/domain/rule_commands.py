"""Rule commands applied to the index: create, remove, and what happens when they come twice, late or out of order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from contracts import frames_pb2 as pb
from contracts.vocabulary import MAX_NAME_CHARACTERS, WINDOWS
from flink_jobs.domain.index_rows import Found
from flink_jobs.domain.price_basis import Split
from flink_jobs.domain.symbol_table import SymbolTable
from flink_jobs.domain.threshold_index import ThresholdIndex
from flink_jobs.domain.threshold_keys import (
    ABOVE,
    BELOW,
    DOWN,
    EITHER,
    MAX_THRESHOLD,
    SLOTS_PER_WINDOW,
    UP,
    threshold_code,
)
from flink_jobs.domain.tombstones import Tombstones

_CHANGE_SIDES: Final = {pb.UP: UP, pb.DOWN: DOWN, pb.EITHER: EITHER}
_PRICE_SIDES: Final = {pb.ABOVE: ABOVE, pb.BELOW: BELOW}
_MAX_INT64: Final = (1 << 63) - 1


def is_sound(rule: pb.Rule) -> bool:
    """Whether a rule names a list and fits the index's columns; others are counted and passed over."""
    if not rule.symbol or len(rule.symbol) > MAX_NAME_CHARACTERS or not 0 < rule.alert_id <= _MAX_INT64:
        return False
    if not 0 < rule.version <= _MAX_INT64 or not -MAX_THRESHOLD <= rule.threshold <= MAX_THRESHOLD:
        return False
    if rule.kind == pb.CHANGE:
        return rule.direction in _CHANGE_SIDES and rule.window < len(WINDOWS)
    return rule.kind == pb.PRICE and rule.direction in _PRICE_SIDES


@dataclass(slots=True)
class RuleBook:
    """The parts of a shard's state that commands and splits change. An alert's list and threshold never change."""

    symbols: SymbolTable
    index: ThresholdIndex
    tombstones: Tombstones
    learnt: list[str | tuple[int, Split]]  # symbols and splits that this record brought
    highest_id: int = 0  # alerts above it were never installed: no search for what a create replaces

    def symbol_number(self, name: str) -> int:
        """Number of a symbol, known or new."""
        number = self.symbols.number_of(name)
        if number is None:
            number = self.symbols.add(name)
            self.learnt.append(name)
        return number

    def symbol_numbers(self, names: Sequence[str]) -> list[int]:
        """`symbol_number` of each; new ones in their order."""
        known = self.symbols.numbers_of(names)
        return [self.symbol_number(name) if n is None else n for name, n in zip(names, known, strict=True)]

    def create(self, rule: pb.Rule, active_from_ms: int = 0) -> int | None:
        """Install a rule; returns its active_from in ms, None when it is removed or a newer version is there.

        `active_from_ms`: of an activation that it has had, 0: this is the first. One of the same version is installed
        anew: evaluation up to here is done, and from here on it goes on.
        """
        if self.tombstones.version_of(rule.alert_id) >= rule.version:
            return None
        number = self.symbol_number(rule.symbol)
        key = self._key(number, rule)
        if rule.alert_id <= self.highest_id:
            found = self.index.find(key, rule.threshold, rule.alert_id)
            if found is not None:
                if found.version > rule.version:
                    return None
                self.index.kill(found.place, found.row)
        self.highest_id = max(self.highest_id, rule.alert_id)
        if active_from_ms <= 0:
            active_from_ms = max(rule.created_at_ms, int(self.symbols.times.newest_ms[number]))
        self.index.install(
            (key, rule.threshold, rule.alert_id, rule.version, rule.created_at_ms, active_from_ms, rule.expires_at_ms)
        )
        return active_from_ms

    def remove(self, rule: pb.Rule, newest_ms: int) -> None:
        """Take out a rule of at most this version, and remember that it is over."""
        found = self.find(rule)
        if found is not None and found.version <= rule.version:
            self.index.kill(found.place, found.row)
        self.tombstones.bury(rule.alert_id, rule.version, newest_ms)

    def find(self, rule: pb.Rule) -> Found | None:
        """The rule in the index, of whatever version."""
        number = self.symbols.number_of(rule.symbol)
        if number is None or rule.alert_id > self.highest_id:
            return None
        return self.index.find(self._key(number, rule), rule.threshold, rule.alert_id)

    def is_over(self, rule: pb.Rule) -> bool:
        """Whether no later tick can lie in its lifetime."""
        number = self.symbols.number_of(rule.symbol)
        return number is not None and rule.expires_at_ms <= int(self.symbols.times.newest_ms[number])

    def split(self, name: str, split: Split) -> None:
        """Learn a split: targets written from then on belong to lists of their own."""
        number = self.symbol_number(name)
        division = self.symbols.add_split(number, split)
        if division is None:
            return
        self.learnt.append((number, split))
        for side in (ABOVE, BELOW):
            old = self.symbols.price_base(number, division.old_pair, side)
            new = self.symbols.price_base(number, division.new_pair, side)
            self.index.move_list(old, new, division.created_from_ms)

    def _key(self, number: int, rule: pb.Rule) -> int:
        if rule.kind == pb.CHANGE:
            base = self.symbols.home_base(number, rule.window * SLOTS_PER_WINDOW + _CHANGE_SIDES[rule.direction])
        else:
            history = self.symbols.history(number)
            pair = history.pair_at(rule.created_at_ms) if history else 0
            base = self.symbols.price_base(number, pair, _PRICE_SIDES[rule.direction])
        return base + threshold_code(rule.threshold)
