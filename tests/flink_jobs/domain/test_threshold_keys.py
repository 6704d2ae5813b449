from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flink_jobs.domain.threshold_keys import (
    CODE_BITS,
    END_OF_KEYS,
    EXACT,
    MAX_BLOCKS,
    MAX_THRESHOLD,
    SLOTS,
    list_base,
    list_base_of,
    threshold_code,
    threshold_codes,
)

EDGES = [0, 1, EXACT - 1, EXACT, EXACT + 1, 2 * EXACT - 1, 2 * EXACT, MAX_THRESHOLD, MAX_THRESHOLD + 1]
THRESHOLDS = st.one_of(
    st.sampled_from([*EDGES, *(-edge for edge in EDGES)]),
    st.integers(-MAX_THRESHOLD, MAX_THRESHOLD),
    st.integers(-10_000, 10_000),
)


@given(st.lists(THRESHOLDS, max_size=20))
def test_codes_keep_the_order_fit_their_bits_and_are_the_same_in_columns(thresholds: list[int]) -> None:
    thresholds.sort()
    codes = [threshold_code(threshold) for threshold in thresholds]
    assert codes == sorted(codes)
    assert all(0 <= code < 1 << CODE_BITS for code in codes)
    assert threshold_codes(np.array(thresholds, np.int64)).tolist() == codes


@given(st.integers(-EXACT, EXACT - 2))
def test_codes_are_exact_where_they_promise(threshold: int) -> None:
    assert threshold_code(threshold + 1) == threshold_code(threshold) + 1


def test_the_last_list_is_below_the_end() -> None:
    key = list_base(MAX_BLOCKS - 1, SLOTS - 1) + (1 << CODE_BITS) - 1
    assert key <= END_OF_KEYS
    assert list_base_of(key) == list_base(MAX_BLOCKS - 1, SLOTS - 1)
