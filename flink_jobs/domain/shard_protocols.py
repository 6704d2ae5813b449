"""The matcher's part in reshards and rebuilds (docs/architecture.md): marks at their places, rules that leave as a
whole, and the comparison of the index with the table.

State entry `protocols`: `<version u1><7 zero bytes>`, a rebuild under way `<id u8><repair u1><bytes of the name u2>
<old runs u4><name>` (id 0: none), and for each symbol that moved `<number u4><phase u4><routing version u8>`.
Written by folds alone: every record that changes any of it is folded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import numpy as np

from contracts import frames_pb2 as pb
from contracts.vocabulary import MAX_NAME_CHARACTERS
from flink_jobs.domain.frame_error import StateError
from flink_jobs.domain.rule_commands import RuleBook, is_sound
from flink_jobs.domain.state import StateMap
from flink_jobs.domain.threshold_keys import END_OF_KEYS

PROTOCOLS_KEY: Final = "protocols"
PROTOCOLS_VERSION: Final = 1
REBUILD_COMMANDS: Final = frozenset({"begin_rebuild", "assert_rules", "end_rebuild"})
MAX_NAMED: Final = 20  # differences of one page, or of an end, by name; the counts are complete
_PRELUDE: Final = 8
_REBUILD: Final = struct.Struct("<QBHI")
_MOVED: Final = struct.Struct("<IIQ")
_MAX_INT64: Final = (1 << 63) - 1


class Verdict(Enum):
    """What an asserted rule was to the index."""

    KNOWN = auto()
    MISSING = auto()
    OTHER_VERSION = auto()


@dataclass(frozen=True, slots=True)
class OpenRebuild:
    """Between a rebuild's begin and its end. `symbol` "": every rule of the shard."""

    rebuild_id: int
    symbol: str
    repair: bool


@dataclass(slots=True)
class ShardProtocols:
    """Of one shard. `must_fold`: this record is to be folded."""

    rules: RuleBook
    rebuild: OpenRebuild | None
    moved: dict[int, tuple[int, int]]  # symbol number -> newest (routing version, phase) that was applied
    must_fold: bool = False

    # ------------------------------------------------------------------------------ reshards
    def routing(self, routing: pb.Routing) -> pb.RoutingMark | None:
        """Take a place of a symbol's routing in; None for one that is over: a rolling job begun anew repeats them."""
        sound = 0 < len(routing.symbol) <= MAX_NAME_CHARACTERS and 0 < routing.version <= _MAX_INT64
        if not sound or routing.phase == pb.Routing.AT_ONCE:
            return None
        number = self.rules.symbol_number(routing.symbol)
        place = routing.version, routing.phase
        if place <= self.moved.get(number, (0, 0)):
            return None
        self.moved[number] = place
        self.must_fold = True
        self.rules.symbols.advance(number, routing.newest_event_time_ms)
        if routing.phase == pb.Routing.END:
            self.rules.index.drop(self.rules.symbols.key_ranges(number), 0, old_only=False)
        return pb.RoutingMark(symbol=routing.symbol, version=routing.version, phase=routing.phase)

    # ------------------------------------------------------------------------------ rebuilds
    def answer(self, command: pb.Command, newest_ms: int) -> Iterator[tuple[pb.CandidateEntry, int]]:
        """What a command of a rebuild emits, with its event time in ms; the caller fills the positions in."""
        if command.HasField("assert_rules"):
            for said, time_ms in self.assert_rules(command.assert_rules):
                if isinstance(said, pb.Activation):
                    yield pb.CandidateEntry(activation=said), time_ms
                else:
                    yield pb.CandidateEntry(rebuild=said), newest_ms
            return
        mark = None
        if command.HasField("begin_rebuild"):
            mark = self.begin(command.begin_rebuild)
        elif command.HasField("end_rebuild"):
            mark = self.end(command.end_rebuild)
        if mark is not None:
            yield pb.CandidateEntry(rebuild=mark), newest_ms

    def begin(self, begin: pb.BeginRebuild) -> pb.RebuildMark | None:
        """One that is under way is given up for it. None: it is refused."""
        if not 0 < begin.rebuild_id <= _MAX_INT64 or len(begin.symbol) > MAX_NAME_CHARACTERS:
            return None
        self.rebuild = OpenRebuild(begin.rebuild_id, begin.symbol, begin.repair)
        self.rules.index.begin_generation()
        self.must_fold = True
        return pb.RebuildMark(rebuild_id=begin.rebuild_id, step=pb.RebuildMark.BEGUN)

    def assert_rules(self, page: pb.AssertRules) -> Iterator[tuple[pb.Activation | pb.RebuildMark, int]]:
        """Activations of rules that were missing, then the page's mark; each with its event time in ms.

        Without its begin nothing is asserted: a matcher that begins in the middle of a rebuild has no part in it.
        """
        if self.rebuild is None or page.rebuild_id != self.rebuild.rebuild_id:
            return
        mark = pb.RebuildMark(rebuild_id=page.rebuild_id, step=pb.RebuildMark.ASSERTED)
        times = np.zeros(len(page.rules), np.int64)
        given = np.frombuffer(page.active_from_ms[: 8 * len(times)], "<i8", count=len(page.active_from_ms) // 8)
        times[: len(given)] = given
        for rule, since_ms in zip(page.rules, times.tolist(), strict=True):
            if not is_sound(rule) or self.rebuild.symbol not in ("", rule.symbol):
                continue
            verdict, found_version, active_from_ms = self._assert_rule(rule, since_ms, self.rebuild.repair)
            if verdict is Verdict.KNOWN:
                mark.known += 1
                continue
            kind = pb.Difference.MISSING if verdict is Verdict.MISSING else pb.Difference.OTHER_VERSION
            mark.missing += verdict is Verdict.MISSING
            mark.other_version += verdict is Verdict.OTHER_VERSION
            if len(mark.differences) < MAX_NAMED:
                mark.differences.add(
                    kind=kind, alert_id=rule.alert_id, version=rule.version, found_version=found_version
                )
            if active_from_ms is not None:
                activation = pb.Activation(
                    alert_id=rule.alert_id, version=rule.version, active_from_event_time_ms=active_from_ms
                )
                yield activation, active_from_ms
        yield mark, 0

    def _assert_rule(self, rule: pb.Rule, since_ms: int, repair: bool) -> tuple[Verdict, int, int | None]:
        """(verdict, version in the index, active_from when it was installed). Commands since the begin win."""
        rules = self.rules
        if rules.tombstones.version_of(rule.alert_id) >= rule.version:
            return Verdict.KNOWN, 0, None
        found = rules.find(rule)
        if found is None:
            if rules.is_over(rule):  # it may have left when it was crossed after its end
                return Verdict.KNOWN, 0, None
            return Verdict.MISSING, 0, rules.create(rule, since_ms) if repair else None
        if found.version == rule.version or not repair:
            rules.index.renew(found)
            return Verdict.KNOWN if found.version == rule.version else Verdict.OTHER_VERSION, found.version, None
        if found.version > rule.version:
            rules.index.renew(found)
            return Verdict.OTHER_VERSION, found.version, None
        return Verdict.OTHER_VERSION, found.version, rules.create(rule, since_ms)

    def end(self, end: pb.EndRebuild) -> pb.RebuildMark | None:
        """What was neither asserted nor created since the begin is surplus. None: not the one under way."""
        if self.rebuild is None or end.rebuild_id != self.rebuild.rebuild_id:
            return None
        rebuild, self.rebuild, self.must_fold = self.rebuild, None, True
        ranges = [(0, END_OF_KEYS - 1)]
        if rebuild.symbol:
            number = self.rules.symbols.number_of(rebuild.symbol)
            ranges = [] if number is None else self.rules.symbols.key_ranges(number)
        dropped = self.rules.index.drop(ranges, MAX_NAMED, old_only=True, keep=not rebuild.repair)
        self.rules.index.end_generation()
        mark = pb.RebuildMark(rebuild_id=end.rebuild_id, step=pb.RebuildMark.ENDED, surplus=dropped.rules)
        for alert_id, version in dropped.named:
            mark.differences.add(kind=pb.Difference.SURPLUS, alert_id=alert_id, version=version)
        return mark

    def fired(self, alert_id: int, version: int, newest_ms: int) -> None:
        """A rule that fires while the table is read out must not come back by a page that was read before."""
        if self.rebuild is not None:
            self.rules.tombstones.bury(alert_id, version, newest_ms)

    # ------------------------------------------------------------------------------ state
    def write(self, state: StateMap) -> None:
        """Behind the index's fold; nothing is written while there is nothing to say."""
        if not self.moved and self.rebuild is None and state.get(PROTOCOLS_KEY) is None:
            return
        rebuild = self.rebuild or OpenRebuild(0, "", repair=False)
        name = rebuild.symbol.encode()
        head = _REBUILD.pack(rebuild.rebuild_id, rebuild.repair, len(name), self.rules.index.old_runs) + name
        moved = b"".join(_MOVED.pack(number, phase, version) for number, (version, phase) in self.moved.items())
        state.put(PROTOCOLS_KEY, bytes([PROTOCOLS_VERSION]).ljust(_PRELUDE, b"\0") + head + moved)

    @classmethod
    def read(cls, state: StateMap, rules: RuleBook) -> ShardProtocols:
        """As written, the index's generation with it."""
        blob = state.get(PROTOCOLS_KEY)
        if blob is None:
            return cls(rules, None, {})
        if blob[0] != PROTOCOLS_VERSION:
            raise StateError(PROTOCOLS_KEY, f"is of a version other than {PROTOCOLS_VERSION}")
        rebuild_id, repair, length, old_runs = _REBUILD.unpack_from(blob, _PRELUDE)
        at = _PRELUDE + _REBUILD.size
        symbol = blob[at : at + length].decode()
        moved = {number: (version, phase) for number, phase, version in _MOVED.iter_unpack(blob[at + length :])}
        rules.index.old_runs = old_runs
        return cls(rules, OpenRebuild(rebuild_id, symbol, bool(repair)) if rebuild_id else None, moved)
