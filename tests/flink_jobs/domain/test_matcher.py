"""The matcher's rules one by one. Properties over random logs are in test_matcher_properties.py."""

from __future__ import annotations

import pytest

from contracts import frames_pb2 as pb
from flink_jobs.domain.candidate_writer import MAX_FRAME_ENTRIES
from flink_jobs.domain.frame_error import FrameError, StateError, UnfinishedRecordError
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.matcher_journal import JOURNAL_RECORDS
from flink_jobs.domain.state import MemoryState
from tests.flink_jobs.domain.shard_log import (
    SHARD,
    Change,
    Create,
    Heartbeat,
    Marker,
    Reborn,
    Remove,
    Rule,
    Shard,
    Split,
    Tick,
    command_record,
    entries_of,
    fired,
    metric_frame,
    metric_record,
    moved,
    priced,
)


def test_a_rule_is_activated_then_fires_once_with_its_evidence() -> None:
    shard = Shard()
    (activation,) = shard.feed(Create(Rule(5, "AAA", "UP", 500, window=1, version=2, created_at_ms=50)))
    assert activation.position == 1
    assert activation.activation == pb.Activation(alert_id=5, version=2, active_from_event_time_ms=50)
    (entry,) = shard.feed(moved("AAA", 100, 499, 500))
    assert entry.position == 2
    assert entry.candidate == pb.Candidate(
        alert_id=5, version=2, event_time_ms=100, sequence=7, session=3, price_scaled=100, fired=pb.UP, window=1,
        reference_time_ms=40, reference_price_scaled=105, previous_bps=499, current_bps=500,
    )  # fmt: skip
    assert shard.feed(moved("AAA", 101, 499, 500)) == []


@pytest.mark.parametrize(
    ("direction", "previous", "current", "fires"),
    [
        ("UP", 499, 500, True),
        ("UP", 500, 600, False),  # it held before
        ("UP", 400, 499, False),
        ("DOWN", -499, -500, True),
        ("DOWN", 499, 500, False),
        ("DOWN", -500, -501, False),
        ("EITHER", 499, 501, True),
        ("EITHER", -499, -501, True),
        ("EITHER", 500, 499, False),
    ],
)
def test_a_change_crosses_its_threshold(direction: str, previous: int, current: int, fires: bool) -> None:
    shard = Shard()
    shard.feed(Create(Rule(1, "AAA", direction, 500)))
    assert fired(shard.feed(moved("AAA", 10, previous, current))) == ([1] if fires else [])


def test_halves_of_a_bps_are_neither_rounded_up_nor_down() -> None:
    for previous, current, fires in ((999, 1_000, [1]), (997, 999, []), (1_000, 1_001, [])):
        shard = Shard()
        shard.feed(Create(Rule(1, "AAA", "UP", 500)), Create(Rule(2, "AAA", "DOWN", 500)))
        up = Tick("AAA", 10, changes=(Change(1, previous, current),))
        down = Tick("AAA", 11, changes=(Change(1, -previous, -current),))
        assert fired(shard.feed(up)) == fires
        assert fired(shard.feed(down)) == [2 * id for id in fires]


def test_either_fires_once_in_whichever_direction_comes_first() -> None:
    shard = Shard()
    shard.feed(Create(Rule(1, "AAA", "EITHER", 500)))
    assert fired(shard.feed(moved("AAA", 10, -499, -500))) == [1]
    assert fired(shard.feed(moved("AAA", 11, 499, 500), moved("AAA", 12, -499, -500))) == []


def test_one_tick_claims_in_the_order_of_window_direction_threshold_and_id() -> None:
    shard = Shard()
    shard.feed(
        Create(Rule(9, "AAA", "UP", 100, window=0)), Create(Rule(8, "AAA", "EITHER", 200, window=0)),
        Create(Rule(7, "AAA", "UP", 200, window=0)), Create(Rule(6, "AAA", "DOWN", 50, window=3)),
        Create(Rule(5, "AAA", "ABOVE", 150, window=None)), Create(Rule(4, "AAA", "UP", 300, window=0)),
    )  # fmt: skip
    tick = Tick("AAA", 10, 160, 140, 5, (Change(0, 0, 2_000), Change(3, 0, -200)))
    assert fired(shard.feed(tick)) == [9, 7, 8, 4, 6, 5]


def test_price_rules_cross_at_exact_bounds() -> None:
    cases = [("ABOVE", 99, 100, True), ("ABOVE", 100, 101, False), ("ABOVE", 98, 99, False), ("BELOW", 101, 100, True)]
    cases += [("BELOW", 100, 99, False), ("BELOW", 102, 101, False), ("ABOVE", 100, 100, False)]
    for direction, previous, price, fires in cases:
        shard = Shard()
        shard.feed(Create(Rule(1, "AAA", direction, 100, window=None)))
        assert fired(shard.feed(priced("AAA", 10, previous, price))) == ([1] if fires else [])


def test_a_tick_without_a_previous_price_moves_no_price_rule() -> None:
    shard = Shard()
    shard.feed(Create(Rule(1, "AAA", "ABOVE", 100, window=None)))
    assert shard.feed(priced("AAA", 10, 0, 200)) == []


def test_targets_lie_between_ticks_after_a_split() -> None:
    shard = Shard()
    shard.feed(priced("AAA", 10, 0, 10_001))
    shard.feed(Create(Rule(1, "AAA", "ABOVE", 10_000, None, created_at_ms=10)))
    shard.feed(Create(Rule(2, "AAA", "ABOVE", 10_003, None, created_at_ms=10)))
    shard.feed(Split("AAA", 20, 3, 1))
    assert fired(shard.feed(priced("AAA", 30, 10_001, 3_334, 10), priced("AAA", 31, 3_334, 3_333, 30))) == []
    assert fired(shard.feed(priced("AAA", 32, 3_333, 3_334, 31))) == [1]
    assert fired(shard.feed(priced("AAA", 33, 3_334, 3_335, 32))) == [2]


def test_a_target_written_after_a_split_is_on_the_new_basis() -> None:
    shard = Shard()
    shard.feed(Split("AAA", 20, 2, 1), Create(Rule(1, "AAA", "ABOVE", 60, None, created_at_ms=20)))
    shard.feed(Create(Rule(2, "AAA", "ABOVE", 60, None, created_at_ms=19)))
    assert fired(shard.feed(priced("AAA", 30, 29, 30, 25))) == [2]
    assert fired(shard.feed(priced("AAA", 31, 30, 60, 30))) == [1]


@pytest.mark.parametrize("delta_rows", [1, 1_000])
def test_a_split_that_becomes_known_late_divides_a_list(delta_rows: int) -> None:
    shard = Shard(delta_rows=delta_rows)
    old, new = Rule(1, "AAA", "BELOW", 100, None, created_at_ms=10), Rule(2, "AAA", "BELOW", 90, None, created_at_ms=30)
    shard.feed(Create(old), Create(new), Split("AAA", 20, 2, 1))
    shard.restart()
    assert fired(shard.feed(priced("AAA", 40, 51, 50, 35))) == [1]  # 100 on the old basis is 50 now
    assert fired(shard.feed(priced("AAA", 41, 91, 90, 40))) == [2]
    shard = Shard(delta_rows=delta_rows)
    shard.feed(Create(old), Create(new), Split("AAA", 20, 2, 1), Remove(new), Remove(old))
    assert shard.core.metrics()["rules"] == 0


def test_many_splits_get_lists_beyond_the_home_block() -> None:
    shard = Shard(delta_rows=1)
    shard.feed(*(Split("AAA", at, 2, 1) for at in range(300, 100, -10)), Create(Rule(9, "BBB", "UP", 5)))
    for n, at in enumerate(range(105, 315, 10)):
        shard.feed(Create(Rule(10 + n, "AAA", "ABOVE", 1 << 21, None, created_at_ms=at)))
    shard.restart()
    for n in reversed(range(21)):
        price = (1 << 21) >> (20 - n)
        assert fired(shard.feed(priced("AAA", 400, price - 1, price, 390))) == [10 + n]


def test_a_repeated_split_changes_nothing() -> None:
    shard = Shard()
    shard.feed(Create(Rule(1, "AAA", "ABOVE", 100, None)), Split("AAA", 20, 2, 1), Split("AAA", 20, 5, 1))
    assert fired(shard.feed(priced("AAA", 40, 49, 50, 35))) == [1]


def test_active_from_is_the_newest_event_time_of_the_symbol_or_the_creation() -> None:
    shard = Shard()
    shard.feed(moved("AAA", 500, 1, 2), moved("BBB", 900, 1, 2))
    entries = shard.feed(*(Create(Rule(n, "AAA", "UP", 50, created_at_ms=at)) for n, at in ((1, 400), (2, 600))))
    assert [entry.activation.active_from_event_time_ms for entry in entries] == [500, 600]
    assert fired(shard.feed(moved("AAA", 599, 49, 50))) == [1]  # 2 stays, not yet active
    assert fired(shard.feed(moved("AAA", 600, 49, 50))) == [2]


def test_expired_rules_never_fire_whether_they_arrive_so_or_become_so() -> None:
    shard = Shard()
    shard.feed(moved("AAA", 500, 1, 2))
    entries = shard.feed(Create(Rule(1, "AAA", "UP", 50, expires_at_ms=500)))
    assert entries[0].activation.active_from_event_time_ms == 500  # the finalizer ends it
    shard.feed(Create(Rule(2, "AAA", "UP", 50, expires_at_ms=600)), Create(Rule(3, "AAA", "UP", 50, expires_at_ms=601)))
    assert fired(shard.feed(moved("AAA", 600, 49, 50))) == [3]
    assert shard.core.metrics()["rules"] == 0


def test_commands_that_come_twice_late_or_for_nothing() -> None:
    shard = Shard()
    one, two = Rule(1, "AAA", "UP", 50), Rule(1, "AAA", "UP", 50, version=2)
    assert shard.feed(Remove(Rule(7, "NEVER", "UP", 50)), Remove(Rule(8, "AAA", "DOWN", 50))) == []
    assert len(shard.feed(Create(one), Create(one))) == 2  # acknowledged again, one rule
    assert shard.core.metrics()["rules"] == 1
    shard.feed(Create(two))
    assert shard.feed(Create(one)) == []  # older
    shard.feed(Remove(one))  # of the version before: the newer one stays
    (entry,) = shard.feed(moved("AAA", 10, 49, 50))
    assert (entry.candidate.alert_id, entry.candidate.version) == (1, 2)
    shard.feed(Remove(two))
    assert shard.feed(Create(two)) == []  # its remove came first
    assert len(shard.feed(Create(Rule(1, "AAA", "UP", 50, version=3)))) == 1
    assert fired(shard.feed(moved("AAA", 11, 49, 50))) == [1]


def test_a_rule_of_a_symbol_that_never_ticked_waits() -> None:
    shard = Shard()
    (entry,) = shard.feed(Create(Rule(1, "NEW", "UP", 50, created_at_ms=33)))
    assert entry.activation.active_from_event_time_ms == 33
    shard.restart()
    assert fired(shard.feed(moved("NEW", 40, 0, 50))) == [1]


def test_an_unsound_command_is_passed_over_and_counts_as_an_entry() -> None:
    shard = Shard()
    frame = pb.CommandFrame(shard=SHARD, epoch=1, first_number=1)
    for broken in ({"direction": pb.ABOVE}, {"window": 6}, {"version": 0}, {"symbol": ""}, {"threshold": 1 << 62}):
        message = Rule(1, "AAA", "UP", 50).message()
        for name, value in broken.items():
            setattr(message, name, value)
        frame.commands.add().create.rule.CopyFrom(message)
    frame.commands.add()
    frame.commands.add().create.rule.CopyFrom(Rule(2, "AAA", "UP", 50).message())
    (entry,) = entries_of(shard.core.process(pb.ShardLogRecord(commands=frame).SerializeToString()))
    assert (entry.position, entry.activation.alert_id) == (7, 2)
    assert shard.core.metrics()["refused_commands"] == 6


def test_frontier_and_marker_come_out_at_their_place() -> None:
    shard = Shard()
    shard.feed(Create(Rule(1, "AAA", "UP", 50)), Create(Rule(2, "AAA", "UP", 60)))
    log = [moved("AAA", 10, 0, 50), Heartbeat(12), Split("AAA", 5, 2, 1), Marker(4), moved("AAA", 13, 50, 60)]
    entries = entries_of(shard.core.process(metric_record(log, 1)))
    assert [entry.WhichOneof("kind") for entry in entries] == ["candidate", "frontier", "marker", "candidate"]
    assert [entry.position for entry in entries] == [3, 4, 6, 7]
    frontier = pb.Frontier(frontier_ms=12, metrics_epoch=1, metrics_number=2, counts=pb.Counts(late=4))
    assert entries[1].frontier == frontier


def test_the_two_writers_are_read_by_the_numbering_rule() -> None:
    shard = Shard()
    core = shard.core
    shard.feed(Create(Rule(1, "AAA", "UP", 50)), moved("AAA", 5, 0, 1))
    before = dict(shard.state.entries)
    assert entries_of(core.process(metric_record([moved("AAA", 6, 0, 99)], 3))) == []  # a gap
    assert entries_of(core.process(metric_record([moved("AAA", 6, 0, 99)], 2, epoch=2))) == []  # must begin at 1
    assert entries_of(core.process(metric_record([moved("AAA", 6, 0, 99)], 1))) == []  # known
    assert entries_of(core.process(metric_record([moved("AAA", 6, 0, 99)], 2, epoch=0))) == []  # over
    assert shard.state.entries == before
    overlap = metric_record([moved("AAA", 5, 0, 1), moved("AAA", 6, 0, 99)], 1)
    assert fired(entries_of(core.process(overlap))) == [1]
    figures = core.metrics()
    assert (figures["ignored_gap"], figures["ignored_known"], figures["ignored_old_epoch"]) == (2, 1, 1)
    assert figures["position"] == 3
    assert len(entries_of(core.process(command_record([Create(Rule(2, "AAA", "UP", 50))], 1, epoch=2)))) == 1


def test_outputs_are_dense_keyed_by_the_shard_and_keep_the_states_epoch() -> None:
    shard = Shard()
    shard.feed(Create(Rule(1, "AAA", "UP", 50)), Heartbeat(77))
    shard.restart()  # with another epoch as its argument
    (output,) = shard.core.process(metric_record([moved("AAA", 80, 0, 50)], 2))
    frame = pb.CandidateFrame.FromString(output.value)
    assert (output.key, output.timestamp_ms) == (SHARD, 80)
    assert (frame.shard, frame.epoch, frame.first_number) == (SHARD, 1, 3)


def test_a_storm_becomes_bounded_frames() -> None:
    shard = Shard(delta_rows=700)
    count = 2 * MAX_FRAME_ENTRIES + 5
    entries = entries_of(
        shard.core.process(command_record([Create(Rule(n, "AAA", "UP", 50)) for n in range(1, count + 1)], 1))
    )
    assert len(entries) == count
    frames = [
        pb.CandidateFrame.FromString(output.value)
        for output in shard.core.process(metric_record([moved("AAA", 10, 0, 50)], 1))
    ]
    assert [len(frame.entries) for frame in frames] == [MAX_FRAME_ENTRIES, MAX_FRAME_ENTRIES, 5]
    assert [frame.first_number for frame in frames] == [count + 1, count + 1_001, count + 2_001]
    assert fired(entry for frame in frames for entry in frame.entries) == list(range(1, count + 1))


def test_a_record_whose_outputs_were_not_taken_stops_the_core() -> None:
    core = MatcherCore(MemoryState(), SHARD, 1)
    core.process(command_record([Create(Rule(1, "AAA", "UP", 50))], 1))
    with pytest.raises(UnfinishedRecordError):
        core.process(command_record([Create(Rule(2, "AAA", "UP", 50))], 2))


def _broken(reason: str) -> bytes:
    frame = metric_frame([moved("AAA", 10, 0, 50), Heartbeat(5)], 1)
    if reason == "other_shard":
        frame.shard = "feed/1"
    elif reason == "first_number":
        frame.first_number = 0
    elif reason == "number_range":
        frame.epoch = 1 << 63
    elif reason == "name":
        frame.symbols[0] = "A" * 256
    elif reason == "column_length":
        frame.session = b"123"
    elif reason == "symbol_index":
        del frame.symbols[:]
    elif reason == "change_row":
        frame.change_row = b"\1\0\0\0"
    elif reason == "change_window":
        frame.change_window = b"\6"
    elif reason == "control_place":
        frame.controls[0].before_row = 2
    elif reason == "count":
        frame.count = 3
    elif reason == "price":
        frame.price_scaled = bytes(8)
    elif reason == "bounds":
        frame.current_negated_floor_bps = frame.current_floor_bps
    return pb.ShardLogRecord(metrics=frame).SerializeToString()


@pytest.mark.parametrize(
    "reason",
    ["not_protobuf", "empty", "other_shard", "first_number", "column_length", "symbol_index", "change_row",
     "change_window", "control_place", "count", "price", "bounds", "number_range", "name"],
)  # fmt: skip
def test_a_corrupt_record_is_refused_with_the_state_untouched(reason: str) -> None:
    shard = Shard()
    shard.feed(Create(Rule(1, "AAA", "UP", 50)))
    before = dict(shard.state.entries)
    record = {"not_protobuf": b"\xff\xff", "empty": b""}.get(reason) or (b"" if reason == "empty" else _broken(reason))
    with pytest.raises(FrameError) as caught:
        shard.core.process(record)
    assert caught.value.reason == reason
    assert shard.state.entries == before
    assert fired(shard.feed(moved("AAA", 10, 0, 50))) == [1]


def test_thresholds_beyond_the_exact_codes_are_decided_by_the_page() -> None:
    shard = Shard(delta_rows=2)
    big = 1 << 45
    shard.feed(*(Create(Rule(n, "AAA", "ABOVE", big + n, None)) for n in (1, 2, 3, 4)))
    assert fired(shard.feed(priced("AAA", 10, big + 1, big + 3))) == [2, 3]
    shard.feed(Remove(Rule(4, "AAA", "ABOVE", big + 4, None)))
    assert fired(shard.feed(priced("AAA", 11, big, big + 9))) == [1]
    assert shard.core.metrics()["rules"] == 0


def test_a_metric_record_without_hits_costs_one_small_put() -> None:
    class Counting(MemoryState):
        puts: list[int] = []  # noqa: RUF012

        def put(self, key: str, value: bytes) -> None:
            self.puts.append(len(value))
            super().put(key, value)

    shard = Shard(Counting())
    shard.feed(moved("AAA", 10, 0, 1), Create(Rule(1, "AAA", "UP", 50)))
    Counting.puts.clear()
    shard.feed(moved("AAA", 11, 1, 2))
    assert len(Counting.puts) == 1
    assert Counting.puts[0] < 200


def test_the_journal_is_a_ring_that_is_folded_before_it_bites_its_tail() -> None:
    shard = Shard()
    shard.feed(Create(Rule(1, "AAA", "UP", 50)))
    for at in range(2 * JOURNAL_RECORDS + 10):
        shard.feed(moved("AAA", 1_000 + at, 0, 1))
        if at % 100 == 0:
            shard.restart()
    names = [name for name in shard.state.entries if name.startswith("journal/")]
    assert len(names) <= JOURNAL_RECORDS
    shard.restart()
    assert shard.core.metrics()["position"] == 2 * JOURNAL_RECORDS + 11
    (entry,) = shard.feed(Create(Rule(2, "AAA", "UP", 60)))
    assert entry.activation.active_from_event_time_ms == 1_000 + 2 * JOURNAL_RECORDS + 9
    assert fired(shard.feed(moved("AAA", 2_000, 0, 60))) == [1, 2]


def test_state_of_an_unknown_version_is_refused() -> None:
    shard = Shard(delta_rows=1)
    shard.feed(Create(Rule(1, "AAA", "UP", 50)))
    shard.state.put("header", b"\x09" + shard.state.entries["header"][1:])
    with pytest.raises(StateError, match="'header'"):
        shard.restart()


def test_a_rule_installed_behind_a_tick_does_not_fire_when_a_new_epoch_feeds_it_again() -> None:
    shard = Shard()
    first, second = moved("AAA", 50, 0, 150), moved("AAA", 50, 150, 90)
    shard.feed(first, second, Create(Rule(1, "AAA", "UP", 100, created_at_ms=10)))
    shard.restart()
    assert fired(shard.feed(Reborn(), first)) == []
    shard.restart()
    assert fired(shard.feed(second, moved("AAA", 50, 90, 110))) == [1]  # a third tick of that time is new
