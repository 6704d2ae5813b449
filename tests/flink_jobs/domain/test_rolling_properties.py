"""What the rolling core emits depends on the entries alone: not on cuts, restarts, block sizes or the path taken."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts import frames_pb2 as pb
from flink_jobs.domain.rolling_output import RollingOutputs
from flink_jobs.domain.state import MemoryState
from tests.flink_jobs.domain.price_entries import Entry, audit_entries, core_on, cut, shard_entries

SYMBOLS = ("AAA", "BBB", "CCC")
MINUTE_MS = 60_000
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _setup() -> list[Entry]:
    ages = dict.fromkeys(("1m", "1h", "1d", "1w", "1mo", "1y"), 40 * MINUTE_MS)
    first = pb.Control(settings=pb.Settings(reorder_ms=5_000, reference_age_ms=ages, max_ahead_ms=90 * MINUTE_MS))
    return [first, *(pb.Control(instrument=pb.Instrument(symbol=name, decimals=2)) for name in SYMBOLS)]


@st.composite
def feeds(draw: st.DrawFn) -> list[Entry]:
    """One seed and a length: what fails shrinks by length alone, which is quick."""
    return made_feed(Random(draw(st.integers(0, 1 << 32))), draw(st.integers(20, 220)))


def made_feed(random: Random, length: int) -> list[Entry]:
    """A feed that is mostly in order: long regular stretches with every oddity between."""
    entries, now, number = _setup(), 1_000 * MINUTE_MS, 10
    sequence, session = dict.fromkeys(SYMBOLS, 0), dict.fromkeys(SYMBOLS, 0)
    price = dict.fromkeys(SYMBOLS, 10_000)
    for _ in range(length):
        now += random.choice((0, 1_000, 7_000, 20_000, 31_000))
        name, oddity = random.choice(SYMBOLS), random.random()
        price[name] = max(1, price[name] + random.randrange(-150, 151))
        sequence[name] += 1
        tick = (name, now, price[name], sequence[name], session[name])
        if oddity < 0.7:
            entries.append(tick)
        elif oddity < 0.82:
            entries.append(_odd_tick(random, tick))
            sequence[name] -= random.choice((0, 0, 1))
        elif oddity < 0.85:
            session[name], sequence[name] = session[name] + 1, 0
        elif oddity < 0.93:
            entries.append(pb.Control(heartbeat=pb.Heartbeat(frontier_ms=now - random.choice((0, 2_000, 30_000)))))
        else:
            number += random.choice((0, 1, 1, 1))
            entries.append(_numbered(random, name, now, number))
    return [*entries, pb.Control(flush=pb.Flush()), pb.Control(marker=pb.Marker(marker_id=1))]


def _odd_tick(random: Random, tick: tuple[str, int, int, int, int]) -> Entry:
    name, time, price, sequence, session = tick
    return random.choice((
        (name, time, 0, sequence, session),
        (name, time - 9_000, price, sequence, session),
        (name, time, price, sequence + 2, session),
        (name, time, price, max(1, sequence - 1), session),
        (name, time, price, 0, session),
        (name, time, price, sequence, max(0, session - 1)),
        (name, time + 200 * MINUTE_MS, price, sequence, session),
        (name, time, price, sequence + 2_000_000, session),
        ("NOSUCH", time, price, sequence, session),
        (name, time, 1 << 48, 0, session),
        (name, time, price, -3, session),
    ))  # fmt: skip


def _numbered(random: Random, name: str, now: int, number: int) -> pb.Control:
    kind = random.randrange(6)
    if kind < 2:
        new, old = random.choice(((2, 1), (3, 2), (1, 7), (10**18, 3)))
        at = now + random.choice((1, 40_000, -40_000))
        split = pb.Split(symbol=name, effective_from_ms=at, new_shares=new, old_shares=old)
        return pb.Control(control_number=number, split=split)
    if kind < 4:
        return pb.Control(control_number=number, resume=pb.Resume(symbol=name))
    if kind == 4:
        return pb.Control(control_number=number, routing=_routing(random, name, number))
    if random.random() < 0.2:
        return pb.Control(control_number=number, instrument=pb.Instrument(symbol=name, decimals=2))
    changed = pb.Settings(reorder_ms=random.choice((0, 5_000, 20_000)), max_ahead_ms=random.choice((0, 90 * MINUTE_MS)))
    return pb.Control(control_number=number, settings=changed)


def _routing(random: Random, name: str, number: int) -> pb.Routing:
    """Any phase of this version or of one before, of sets that need not fit together."""
    phase = random.choice(pb.Routing.Phase.values())
    version = number if phase in (pb.Routing.AT_ONCE, pb.Routing.OPEN) else max(1, number - random.randrange(4))
    shards, previous = random.choice((1, 2, 3)), random.choice((1, 2, 3))
    return pb.Routing(symbol=name, shards=shards, previous_shards=previous, version=version, phase=phase)


def _run(entries: list[Entry], sizes: list[int], **options: Any) -> tuple[object, object]:
    core = core_on(MemoryState(), **options)
    outputs = [core.process(frame) for frame in cut(entries, sizes)]
    return shard_entries(outputs), audit_entries(outputs)


@QUICK
@given(feeds(), st.lists(st.integers(1, 90), min_size=1, max_size=5), st.integers(5, 60))
def test_cuts_blocks_and_path_change_nothing(entries: list[Entry], sizes: list[int], block_ticks: int) -> None:
    expected = _run(entries, [10_000])
    assert _run(entries, sizes) == expected
    assert _run(entries, sizes, block_ticks=block_ticks) == expected
    assert _run(entries, sizes, entrywise=True) == expected


@QUICK
@given(feeds(), st.integers(1, 40), st.data())
def test_resumes_anywhere_byte_for_byte(entries: list[Entry], size: int, data: st.DataObject) -> None:
    """A copy of the state after any frame goes on as the writer did, whatever epoch it is handed."""
    frames = list(cut(entries, [size]))
    state = MemoryState()
    core = core_on(state, block_ticks=30)
    at = data.draw(st.integers(0, len(frames)))
    for frame in frames[:at]:
        core.process(frame)
    saved = state.copy()
    undisturbed = [core.process(frame) for frame in frames[at:]]
    other = core_on(saved, block_ticks=30)
    assert [other.process(frame) for frame in frames[at:]] == undisturbed
    assert other.counts == core.counts
    once_more = core_on(saved, block_ticks=30)  # and again, from a state that has been resumed before
    assert once_more.process(frames[-1]) == core.process(frames[-1])


@QUICK
@given(st.lists(st.tuples(st.booleans(), st.integers(-5, 60), st.integers(0, 9)), max_size=60))
def test_sequence_runs_are_a_set(steps: list[tuple[bool, int, int]]) -> None:
    from flink_jobs.domain.sequence_runs import SequenceRuns

    runs, expected = SequenceRuns(), set[int]()
    for adding, first, length in steps:
        numbers = range(first, first + length)
        if adding:
            runs.add(first, first + length - 1)
            expected |= set(numbers)
        else:
            runs.remove(first, first + length - 1)
            expected -= set(numbers)
        assert {n for a, b in runs.runs() for n in range(a, b + 1)} == expected
        assert all(a <= b for a, b in runs.runs())
        assert all(earlier[1] + 1 < later[0] for earlier, later in zip(runs.runs(), runs.runs()[1:], strict=False))
        assert [n in runs for n in range(-8, 75)] == [n in expected for n in range(-8, 75)]


def test_outputs_are_of_one_type() -> None:
    assert core_on(MemoryState()).process(b"\x0a\x01f") == RollingOutputs([], [])
