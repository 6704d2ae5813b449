"""The matcher in reshards and rebuilds: what it says, drops and mends; against the word-for-word matcher at random."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import frames_pb2 as pb
from flink_jobs.domain.frame_error import StateError
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.shard_protocols import MAX_NAMED
from flink_jobs.domain.state import MemoryState
from tests.flink_jobs.domain.reference_matcher import ReferenceMatcher
from tests.flink_jobs.domain.shard_log import (
    SHARD,
    Assert,
    Begin,
    Create,
    End,
    Entry,
    Reborn,
    Remove,
    Routed,
    Rule,
    Shard,
    entries_of,
    fired,
    moved,
    records_of,
)
from tests.flink_jobs.domain.test_matcher_properties import SYMBOLS, cuts, logs, run

GOLDEN = Path(__file__).parents[1] / "golden" / "matcher_protocols_v1.json"


def rule(alert_id: int, threshold: int = 100, symbol: str = "AAA", version: int = 1) -> Rule:
    return Rule(alert_id, symbol, "UP", threshold, version=version)


def marks(entries: list[pb.CandidateEntry]) -> list[pb.RebuildMark]:
    return [entry.rebuild for entry in entries if entry.HasField("rebuild")]


def counts(mark: pb.RebuildMark) -> tuple[int, int, int, int]:
    return mark.known, mark.missing, mark.other_version, mark.surplus


# ------------------------------------------------------------------------------ reshards
def test_a_new_shard_says_where_it_is_and_installs_behind_what_others_saw() -> None:
    shard = Shard()
    opened = shard.feed(Routed("AAA", 2, "OPEN", newest_ms=70), Routed("AAA", 2, "COPY", newest_ms=75))
    assert [(e.position, e.routing.symbol, e.routing.version, e.routing.phase) for e in opened] == [
        (1, "AAA", 2, pb.Routing.OPEN), (2, "AAA", 2, pb.Routing.COPY),
    ]  # fmt: skip
    (installed,) = shard.feed(Create(rule(1)))
    assert installed.activation.active_from_event_time_ms == 75


def test_an_old_shard_forgets_the_symbol_at_its_end_and_no_other() -> None:
    shard = Shard()
    shard.feed(*(Create(rule(n, symbol="AAA" if n % 2 else "BBB")) for n in range(1, 9)))
    said = shard.feed(moved("AAA", 10, 0, 99), Routed("AAA", 2, "END"))
    assert [entry.routing.phase for entry in said] == [pb.Routing.END]
    assert shard.core.metrics()["rules"] == 4
    assert fired(shard.feed(moved("AAA", 11, 0, 100), moved("BBB", 11, 0, 100))) == [2, 4, 6, 8]
    shard.feed(Remove(rule(1)), Remove(rule(2)))
    assert shard.core.metrics()["rules"] == 0


def test_an_end_that_a_new_rolling_job_repeats_ends_nothing() -> None:
    """The symbol has moved away and back: its rules are here again."""
    shard = Shard()
    shard.feed(Create(rule(1)), Routed("AAA", 2, "END"), Routed("AAA", 3, "OPEN", newest_ms=20), Create(rule(1)))
    again = shard.feed(Reborn(), Routed("AAA", 2, "END"), Routed("AAA", 3, "OPEN", newest_ms=20))
    assert again == []
    assert fired(shard.feed(moved("AAA", 21, 0, 100))) == [1]


def test_many_rules_leave_at_once_and_the_state_is_rid_of_them() -> None:
    shard = Shard(delta_rows=300)
    shard.feed(*(Create(rule(n, threshold=n % 50)) for n in range(1, 2_001)))
    shard.feed(Routed("AAA", 2, "END"))
    shard.restart()
    assert shard.core.metrics()["rules"] == 0
    assert not any(name.startswith(("page", "keys", "dead")) for name, _ in shard.state.items())


# ------------------------------------------------------------------------------ rebuilds
def test_an_index_that_is_as_the_table_has_no_difference_and_keeps_its_rules_as_they_are() -> None:
    shard = Shard()
    shard.feed(moved("AAA", 50, 0, 1), Create(rule(1)), Create(rule(2, symbol="BBB")), moved("AAA", 60, 0, 1))
    said = shard.feed(Begin(7), Assert(7, (rule(1), rule(2, symbol="BBB"))), End(7))
    assert [(mark.step, *counts(mark)) for mark in marks(said)] == [
        (pb.RebuildMark.BEGUN, 0, 0, 0, 0), (pb.RebuildMark.ASSERTED, 2, 0, 0, 0), (pb.RebuildMark.ENDED, 0, 0, 0, 0),
    ]  # fmt: skip
    assert not any(entry.HasField("activation") for entry in said)
    assert fired(shard.feed(moved("AAA", 60, 0, 100), moved("BBB", 60, 0, 100))) == [1, 2]


@pytest.mark.parametrize("repair", [True, False])
def test_missing_surplus_and_other_versions_are_named_and_mended(repair: bool) -> None:
    shard = Shard()
    shard.feed(Create(rule(1)), Create(rule(2)), Create(rule(3)), Create(rule(4, symbol="BBB")))
    said = shard.feed(Begin(7, repair=repair), Assert(7, (rule(1), rule(2, version=2), rule(9))), End(7))
    _, asserted, ended = marks(said)
    assert (counts(asserted), counts(ended)) == ((1, 1, 1, 0), (0, 0, 0, 2))
    named = [(d.kind, d.alert_id, d.version, d.found_version) for m in (asserted, ended) for d in m.differences]
    assert named == [
        (pb.Difference.OTHER_VERSION, 2, 2, 1), (pb.Difference.MISSING, 9, 1, 0),
        (pb.Difference.SURPLUS, 3, 1, 0), (pb.Difference.SURPLUS, 4, 1, 0),
    ]  # fmt: skip
    activated = [entry.activation.alert_id for entry in said if entry.HasField("activation")]
    assert activated == ([2, 9] if repair else [])
    after = fired(shard.feed(moved("AAA", 80, 0, 100), moved("BBB", 80, 0, 100)))
    assert after == ([1, 2, 9] if repair else [1, 2, 3, 4])


def test_a_rebuild_of_one_symbol_leaves_the_others_alone() -> None:
    shard = Shard()
    shard.feed(Create(rule(1)), Create(rule(2, symbol="BBB")))
    said = shard.feed(Begin(7, "AAA"), Assert(7, (rule(3, symbol="BBB"),)), End(7))
    assert [counts(mark) for mark in marks(said)] == [(0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 1)]
    assert fired(shard.feed(moved("AAA", 80, 0, 100), moved("BBB", 80, 0, 100))) == [2]


def test_what_happens_since_the_begin_wins_over_the_page() -> None:
    shard = Shard()
    shard.feed(*(Create(rule(n)) for n in range(1, 5)))
    shard.feed(Begin(7), Remove(rule(1)), Create(rule(2, version=3)), Create(rule(8)))
    assert fired(shard.feed(moved("AAA", 80, 0, 100))) == [2, 3, 4, 8]
    said = shard.feed(Assert(7, (rule(1), rule(2), rule(3), rule(4))), End(7))
    assert [counts(mark) for mark in marks(said)] == [(4, 0, 0, 0), (0, 0, 0, 0)]
    assert fired(shard.feed(moved("AAA", 90, 0, 100))) == []


def test_a_rule_that_left_when_it_was_crossed_after_its_end_is_not_missing() -> None:
    shard = Shard()
    over = Rule(1, "AAA", "UP", 100, expires_at_ms=70)
    shard.feed(Create(over), moved("AAA", 70, 0, 100))
    assert [counts(mark) for mark in marks(shard.feed(Begin(7), Assert(7, (over,)), End(7)))][1:] == [
        (1, 0, 0, 0), (0, 0, 0, 0),
    ]  # fmt: skip


def test_a_second_begin_gives_the_first_up_and_strangers_are_passed_over() -> None:
    shard = Shard()
    shard.feed(Create(rule(1)), Begin(7), Begin(8))
    assert shard.feed(Assert(7, (rule(5),)), End(7), End(9), Begin(0), Begin(1 << 63)) == []
    assert [counts(mark) for mark in marks(shard.feed(Assert(8, (rule(1),)), End(8)))] == [(1, 0, 0, 0), (0, 0, 0, 0)]
    assert fired(shard.feed(moved("AAA", 90, 0, 100))) == [1]


def test_a_matcher_without_state_is_filled_by_a_rebuild() -> None:
    shard = Shard()
    rules = tuple(rule(n, threshold=100 * (1 + n % 3)) for n in range(1, 301))
    said = shard.feed(Begin(7), Assert(7, rules), End(7))
    assert [counts(mark) for mark in marks(said)] == [(0, 0, 0, 0), (0, 300, 0, 0), (0, 0, 0, 0)]
    assert len(marks(said)[1].differences) == MAX_NAMED
    assert len([entry for entry in said if entry.HasField("activation")]) == 300
    assert len(fired(shard.feed(moved("AAA", 90, 0, 300)))) == 300


def test_state_and_log_lost_rules_come_first_and_the_metrics_are_fed_again() -> None:
    """2 is active since 51 and crosses at 53, where nothing was finalized any more; 3 is so since 53, behind 52."""
    shard = Shard()
    ticks = [moved("AAA", 51, 0, 10), moved("AAA", 52, 10, 100), moved("AAA", 53, 100, 200), moved("AAA", 54, 0, 100)]
    shard.numbers = {True: 40, False: 70}
    assert shard.feed(Create(rule(8)), ticks[3]) == []  # the log's tail: neither begins anything
    page = pb.AssertRules(
        rebuild_id=7, rules=[rule(2, 150).message(), rule(3).message()], active_from_ms=struct.pack("<2q", 51, 53)
    )
    frame = pb.CommandFrame(shard=SHARD, epoch=2, first_number=1)
    frame.commands.add(begin_rebuild=pb.BeginRebuild(rebuild_id=7, repair=True))
    frame.commands.add(assert_rules=page)
    frame.commands.add(end_rebuild=pb.EndRebuild(rebuild_id=7))
    said = entries_of(shard.core.process(pb.ShardLogRecord(commands=frame).SerializeToString()))
    assert [e.activation.active_from_event_time_ms for e in said if e.HasField("activation")] == [51, 53]
    shard.feed(Reborn())
    claims = [entry.candidate for entry in shard.feed(*ticks) if entry.HasField("candidate")]
    assert [(claim.alert_id, claim.event_time_ms) for claim in claims] == [(2, 53), (3, 54)]


# ------------------------------------------------------------------------------ at random
@st.composite
def protocol_logs(draw: st.DrawFn) -> list[Entry]:
    """A random log with moves and rebuilds in it, their pages as far from the index as they like."""
    log: list[Entry] = []
    rules = [
        Rule(n, draw(SYMBOLS), "EITHER", draw(st.integers(-2, 3)), 1, draw(st.integers(1, 3))) for n in (101, 102, 105)
    ]
    for entry in draw(logs()):
        if isinstance(entry, Create):
            rules.append(entry.rule)
        log.append(entry)
        kind = draw(st.sampled_from("....raaabbeo"))
        number, symbol = draw(st.integers(1, 2)), draw(SYMBOLS)
        if kind == "r":
            phase = draw(st.sampled_from(["OPEN", "COPY", "END"]))
            log.append(Routed(symbol, draw(st.integers(1, 4)), phase, draw(st.sampled_from([0, 90, 120]))))
        elif kind == "a":
            log.append(Assert(number, tuple(draw(st.lists(st.sampled_from(rules), max_size=4)))))
        elif kind == "b":
            log.append(Begin(number, draw(st.sampled_from(["", "", symbol])), draw(st.booleans())))
        elif kind == "e":
            log.append(End(number))
        elif kind == "o":
            log += [Begin(number), Assert(number, tuple(rules)), End(number)]
    return log


def normal(entries: list[pb.CandidateEntry]) -> list[pb.CandidateEntry]:
    """Surplus rules are named in the index's order."""
    for entry in entries:
        named = sorted(entry.rebuild.differences, key=lambda d: d.alert_id) if entry.HasField("rebuild") else []
        if named and entry.rebuild.step == pb.RebuildMark.ENDED:
            del entry.rebuild.differences[:]
            entry.rebuild.differences.extend(named)
    return entries


@settings(max_examples=80, deadline=None)
@given(log=protocol_logs(), at=cuts(), delta_rows=st.sampled_from([1, 3, 8, 1_000]), crash_at=st.integers(0, 60))
def test_it_does_what_the_rules_say_however_the_log_is_cut_folded_and_crashed(
    log: list[Entry], at: list[int], delta_rows: int, crash_at: int
) -> None:
    records, state = records_of(log, at), MemoryState()
    outputs = run(MatcherCore(state, SHARD, 1, delta_rows), records[:crash_at])
    outputs += run(MatcherCore(state.copy(), SHARD, 2, delta_rows), records[crash_at:])
    assert normal(entries_of(outputs)) == normal(ReferenceMatcher().run(log))


@settings(max_examples=20, deadline=None)
@given(log=protocol_logs(), at=cuts())
def test_crashing_after_every_record_changes_nothing(log: list[Entry], at: list[int]) -> None:
    state, outputs = MemoryState(), []
    for record in records_of(log, at):
        outputs += run(MatcherCore(state, SHARD, 1, 4), [record])
        state = state.copy()
    assert normal(entries_of(outputs)) == normal(ReferenceMatcher().run(log))


# ------------------------------------------------------------------------------ state
def written_state() -> MemoryState:
    """In the middle of a rebuild, with a symbol that has moved."""
    state = MemoryState()
    core = MatcherCore(state, SHARD, 4, delta_rows=4)
    log: list[Entry] = [Create(rule(n)) for n in range(1, 10)]
    log += [Routed("BBB", 2, "OPEN", 60), Routed("BBB", 3, "END", 60), Begin(7, "AAA", repair=False)]
    log += [Assert(7, (rule(1), rule(2)))]
    run(core, records_of(log, range(len(log))))
    return state


def test_this_code_writes_the_golden_bytes() -> None:
    assert {name: value.hex() for name, value in written_state().items()} == json.loads(GOLDEN.read_text())


def test_the_golden_bytes_are_read() -> None:
    state = MemoryState({name: bytes.fromhex(value) for name, value in json.loads(GOLDEN.read_text()).items()})
    shard = Shard(state)
    shard.numbers = {True: 12, False: 3}
    assert shard.feed(Routed("BBB", 3, "OPEN", 60)) == []
    (ended,) = marks(shard.feed(End(7)))
    assert (counts(ended), len(ended.differences)) == ((0, 0, 0, 7), 7)


def test_newer_state_is_refused_by_name() -> None:
    state = written_state()
    state.entries["protocols"] = b"\x63" + state.entries["protocols"][1:]
    with pytest.raises(StateError, match=r"'protocols'.*version"):
        MatcherCore(state, SHARD, 1)


if __name__ == "__main__" and not GOLDEN.exists():
    GOLDEN.write_text(
        json.dumps({name: value.hex() for name, value in sorted(written_state().items())}, indent=0) + "\n"
    )
