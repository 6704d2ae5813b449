"""A symbol moves between shards while its ticks go on: who is written what, at which place."""

from __future__ import annotations

from typing import Any

import pytest

from contracts import frames_pb2 as pb
from contracts.keys import bucket_shard, hot_shard
from flink_jobs.domain.rolling import RollingCore
from flink_jobs.domain.state import MemoryState
from tests.flink_jobs.domain.price_entries import BUCKET, FEED, Entry, core_on, frame_of, shard_entries

OWN = bucket_shard(FEED, BUCKET)
HOT = [hot_shard(FEED, "AAA", 2, index) for index in range(2)]
T0 = 1_700_000_000_000
INSTRUMENTS: list[Entry] = [pb.Control(instrument=pb.Instrument(symbol=name, decimals=2)) for name in ("AAA", "BBB")]
OPEN, COPY, END = pb.Routing.OPEN, pb.Routing.COPY, pb.Routing.END


def _tick(sequence: int, name: str = "AAA") -> Entry:
    return (name, T0 + sequence, 10_000 + sequence, sequence, 0)


def _routing(phase: pb.Routing.Phase, shards: int = 2, previous: int = 1, version: int = 2) -> Entry:
    return pb.Control(
        routing=pb.Routing(symbol="AAA", shards=shards, previous_shards=previous, version=version, phase=phase)
    )


def _beat(at_ms: int) -> Entry:
    return pb.Control(heartbeat=pb.Heartbeat(frontier_ms=T0 + at_ms))


def _log(core: RollingCore, *frames: list[Entry]) -> dict[str, list[Any]]:
    log = shard_entries([core.process(frame_of(frame)) for frame in frames])
    return {shard: [_shown(entry) for entry in entries] for shard, entries in log.items()}


def _shown(entry: tuple[Any, ...]) -> Any:
    """A tick's sequence with its symbol, a control's kind or phase."""
    if entry[2] == "tick":
        return f"{entry[3]}{entry[4] - T0}"
    control = pb.Control.FromString(entry[3])
    return control.routing.phase if control.HasField("routing") else control.WhichOneof("kind")


MOVE: list[Entry] = [
    *INSTRUMENTS, _tick(1), _routing(OPEN), _tick(2), _tick(1, "BBB"), _beat(0), _routing(COPY), _tick(3),
    _routing(END), _tick(4), _tick(2, "BBB"), _beat(1),
]  # fmt: skip


def test_from_open_to_end_both_sets_get_everything() -> None:
    log = _log(core_on(MemoryState()), MOVE)
    assert log[OWN] == ["AAA1", "AAA2", "BBB1", "heartbeat", "AAA3", END, "BBB2", "heartbeat"]
    assert log[HOT[0]] == log[HOT[1]] == [OPEN, "AAA2", "heartbeat", COPY, "AAA3", "AAA4", "heartbeat"]


@pytest.mark.parametrize("cut", range(1, len(MOVE)))
def test_a_core_restored_anywhere_in_a_move_goes_on(cut: int) -> None:
    state = MemoryState()
    outputs = [core_on(state).process(frame_of(MOVE[:cut]))]
    outputs.append(core_on(state.copy()).process(frame_of(MOVE[cut:])))
    assert shard_entries(outputs) == shard_entries([core_on(MemoryState()).process(frame_of(MOVE))])


def test_old_hot_shards_end_and_count_on_when_they_are_used_again() -> None:
    back: list[Entry] = [_routing(OPEN, 1, 2, 3), _tick(5), _beat(2), _routing(END, 1, 2, 3), _tick(6), _beat(3)]
    again: list[Entry] = [_routing(OPEN, 2, 1, 4), _tick(7), _routing(END, 2, 1, 4), _tick(8)]
    log = _log(core_on(MemoryState()), MOVE, back, again)  # shard_entries asserts that numbers are dense
    assert log[OWN][8:] == [OPEN, "AAA5", "heartbeat", "AAA6", "heartbeat", "AAA7", END]
    assert log[HOT[0]][7:] == ["AAA5", "heartbeat", END, OPEN, "AAA7", "AAA8"]


def test_what_is_over_or_contradicts_is_passed_over() -> None:
    core = core_on(MemoryState())
    _log(core, MOVE)
    stale = [_routing(OPEN), _routing(COPY), _routing(END), _routing(OPEN, 3, 3, 9), _routing(OPEN, 4_000, 1, 9)]
    assert core.process(frame_of(stale)).metrics == []
    assert _log_of_next(core) == {HOT[0], HOT[1]}


def _log_of_next(core: RollingCore) -> set[str]:
    return {record.key for record in core.process(frame_of([_tick(5)])).metrics}


def test_a_core_that_begins_in_the_middle_of_a_move_takes_part_in_it() -> None:
    log = _log(core_on(MemoryState()), [*INSTRUMENTS, _tick(1), _routing(COPY), _tick(2), _routing(END), _tick(3)])
    assert log == {OWN: ["AAA1", "AAA2", END], HOT[0]: [COPY, "AAA2", "AAA3"], HOT[1]: [COPY, "AAA2", "AAA3"]}


def test_new_shards_learn_splits_and_the_newest_time() -> None:
    split = pb.Control(split=pb.Split(symbol="AAA", effective_from_ms=T0, new_shares=3, old_shares=1))
    core = core_on(MemoryState())
    log = shard_entries([core.process(frame_of([*INSTRUMENTS, split, _tick(1), _tick(2), _routing(OPEN)]))])
    first, second = (pb.Control.FromString(entry[3]) for entry in log[HOT[1]])
    assert (first.split.effective_from_ms, second.routing.newest_event_time_ms) == (T0, T0 + 2)
