"""One sortable int64 for (list, threshold): a whole shard's rules in one sorted array.

Bits, from the top: 0 | block 18 | slot 5 | code 40. A symbol owns a block; a block has 32 slots, one a list.
The code keeps the order of any int64 threshold. It is exact below 2**34 and drops low bits above, so an interval of
codes finds a superset there and the threshold itself, which is in the rule's page, decides.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

CODE_BITS: Final = 40
SLOT_BITS: Final = 5
SLOTS: Final = 1 << SLOT_BITS
MAX_BLOCKS: Final = 1 << 18
EXACT_BITS: Final = 34
EXACT: Final = 1 << EXACT_BITS
MAX_THRESHOLD: Final = (1 << 62) - 1  # and its negative: leaves room for the bounds' ±1

_MANTISSA_BITS: Final = EXACT_BITS - 1
_ZERO: Final = 1 << (CODE_BITS - 1)
_WIDENINGS: Final = 64 - EXACT_BITS

UP, DOWN, EITHER = 0, 1, 2  # offsets of a window's lists
SLOTS_PER_WINDOW: Final = 3
FIRST_PRICE_SLOT: Final = 18
ABOVE, BELOW = 0, 1  # offsets of a basis's lists
SLOTS_PER_BASIS: Final = 2
HOME_BASES: Final = (SLOTS - FIRST_PRICE_SLOT) // SLOTS_PER_BASIS  # price bases that fit beside the windows
EXTRA_BASES: Final = SLOTS // SLOTS_PER_BASIS  # price bases in a block of their own
END_OF_KEYS: Final = (1 << 63) - 1  # above every key


def threshold_code(threshold: int) -> int:
    """Order-keeping 40-bit code of a threshold (or bound) within ±MAX_THRESHOLD."""
    if threshold < 0:
        return _ZERO - 1 - _magnitude_code(-1 - threshold)
    return _ZERO + _magnitude_code(threshold)


def _magnitude_code(magnitude: int) -> int:
    if magnitude < EXACT:
        return magnitude
    exponent = magnitude.bit_length() - EXACT_BITS
    return (exponent << _MANTISSA_BITS) + (magnitude >> exponent)


def threshold_codes(thresholds: Int64s) -> Int64s:
    """`threshold_code` of each."""
    if thresholds.size == 0 or (int(thresholds.max()) < EXACT and int(thresholds.min()) >= -EXACT):
        return thresholds + _ZERO
    negative = thresholds < 0
    magnitude = np.where(negative, -1 - thresholds, thresholds)
    exponent = np.zeros(len(thresholds), np.int64)
    for shift in range(_WIDENINGS):
        wide = magnitude >= EXACT << shift if shift < 63 - EXACT_BITS else np.zeros(len(magnitude), bool)
        if not wide.any():
            break
        exponent += wide
    code = (exponent << _MANTISSA_BITS) + (magnitude >> exponent)
    return np.where(negative, _ZERO - 1 - code, _ZERO + code)


def list_base(block: int, slot: int) -> int:
    """Key of a list; a rule's key is this plus its threshold's code."""
    return (block << SLOT_BITS | slot) << CODE_BITS


def list_base_of(key: int) -> int:
    """Key of the list that a rule's key is in."""
    return key >> CODE_BITS << CODE_BITS
