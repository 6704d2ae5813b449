from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contracts.numbering import LastNumber, Reading


def test_the_next_frame_applies_whole() -> None:
    judged = LastNumber(3, 10).judge(3, 11, 4)
    assert (judged.reading, judged.skip, judged.last) == (Reading.APPLY, 0, LastNumber(3, 14))


def test_an_overlapping_frame_applies_from_its_first_new_entry() -> None:
    judged = LastNumber(3, 10).judge(3, 8, 5)
    assert (judged.reading, judged.skip, judged.last) == (Reading.APPLY, 3, LastNumber(3, 12))


def test_a_frame_that_ends_at_the_last_number_is_known() -> None:
    judged = LastNumber(3, 10).judge(3, 8, 3)
    assert (judged.reading, judged.last) == (Reading.KNOWN, LastNumber(3, 10))
    assert not judged.applies


def test_a_frame_beyond_the_next_number_is_a_gap_and_changes_nothing() -> None:
    judged = LastNumber(3, 10).judge(3, 12, 1)
    assert (judged.reading, judged.last) == (Reading.GAP, LastNumber(3, 10))


def test_a_lower_epoch_is_over_whatever_its_number() -> None:
    assert LastNumber(3, 10).judge(2, 11, 1).reading is Reading.OLD_EPOCH


def test_a_higher_epoch_begins_at_one() -> None:
    judged = LastNumber(3, 10).judge(5, 1, 2)
    assert (judged.reading, judged.last) == (Reading.NEW_EPOCH, LastNumber(5, 2))
    assert LastNumber(3, 10).judge(5, 2, 2).reading is Reading.GAP


def test_an_empty_frame_never_moves_a_reader() -> None:
    for last in (LastNumber(), LastNumber(3, 10)):
        for epoch in (0, 3, 4):
            for first in (1, 11, 12):
                assert last.judge(epoch, first, 0).last == last


@given(
    entries=st.integers(1, 30),
    frames=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 10)), max_size=40),
)
def test_any_delivery_applies_each_entry_at_most_once_and_in_order(entries: int, frames: list[tuple[int, int]]) -> None:
    last, applied = LastNumber(), []
    for first, count in [*frames, (1, entries)]:
        judged = last.judge(1, first, count)
        if judged.applies:
            applied += range(first + judged.skip, first + count)
        last = judged.last
    assert applied == list(range(1, len(applied) + 1))
    assert len(applied) >= entries
    assert last == LastNumber(1, len(applied))
