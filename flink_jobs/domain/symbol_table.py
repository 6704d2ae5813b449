"""The symbols that a shard's log has named: block number, newest event time, splits. Kept in chunks of the state."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flink_jobs.domain.frame_error import ShardFullError, StateError
from flink_jobs.domain.price_basis import Division, Split, SplitHistory
from flink_jobs.domain.state import StateMap
from flink_jobs.domain.threshold_keys import (
    EXTRA_BASES,
    FIRST_PRICE_SLOT,
    HOME_BASES,
    MAX_BLOCKS,
    SLOTS_PER_BASIS,
    Int64s,
    list_base,
)
from flink_jobs.domain.tick_times import NEVER, TickTimes

CHUNK_VERSION: Final = 2
CHUNK_VERSION_WITHOUT_SEAMS: Final = 1
CHUNK_SYMBOLS: Final = 256
# bytes of the name, newest event time, ticks at it, seam, ticks left at it, splits, extra blocks, block
_SYMBOL: Final = struct.Struct("<HqqqqHHI")
_SYMBOL_WITHOUT_SEAMS: Final = struct.Struct("<HqHHI")
_SPLIT: Final = struct.Struct("<qQQ")
_BLOCK: Final = struct.Struct("<I")


def symbols_key(chunk: int) -> str:
    """State key of a chunk of symbols."""
    return f"symbols/{chunk:x}"


class SymbolTable:
    """Symbols by number, in the order in which the log named them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._blocks: list[int] = []
        self._extra_blocks: dict[int, list[int]] = {}
        self._histories: dict[int, SplitHistory] = {}
        self._next_block = 0
        self._dirty: set[int] = set()
        self.times = TickTimes()
        self.home_bases: Int64s = np.zeros(64, np.int64)  # key of each symbol's list 0
        self.has_splits = np.zeros(64, bool)

    def number_of(self, name: str) -> int | None:
        """Number of a symbol that was named before."""
        return self._numbers.get(name)

    def numbers_of(self, names: Iterable[str]) -> list[int | None]:
        """`number_of` each."""
        return list(map(self._numbers.get, names))

    def add(self, name: str) -> int:
        """Number of a symbol that was not named before."""
        number = len(self.names)
        block = self._take_block()
        self.names.append(name)
        self._numbers[name] = number
        self._blocks.append(block)
        self.times.make_room(number + 1)
        if number == len(self.home_bases):
            self.home_bases = np.append(self.home_bases, np.zeros_like(self.home_bases))
            self.has_splits = np.append(self.has_splits, np.zeros_like(self.has_splits))
        self.home_bases[number] = list_base(block, 0)
        self._dirty.add(number // CHUNK_SYMBOLS)
        return number

    def _take_block(self) -> int:
        if self._next_block == MAX_BLOCKS:
            raise ShardFullError(f"its symbols need more than {MAX_BLOCKS} blocks of lists")
        self._next_block += 1
        return self._next_block - 1

    def see(self, numbers: Int64s, event_times_ms: Int64s) -> NDArray[np.bool_] | None:
        """Take ticks in, in order; which of them an earlier metrics epoch has fed before, None: none."""
        self._dirty.update(np.unique(numbers // CHUNK_SYMBOLS).tolist())
        return self.times.see(numbers, event_times_ms)

    def advance(self, number: int, time_ms: int) -> None:
        """The symbol's ticks have come to this time elsewhere."""
        self._dirty.add(number // CHUNK_SYMBOLS)
        self.times.advance(number, time_ms)

    def see_again(self, columns: Int64s) -> None:
        """What `times.columns` gave, of a journal."""
        self._dirty.update(np.unique(columns[0] // CHUNK_SYMBOLS).tolist())
        self.times.restore(columns)

    def begin_epoch(self) -> None:
        """The metrics begin anew, at some earlier tick of each symbol."""
        self.times.begin_epoch()
        self._dirty.update(range(-(-len(self.names) // CHUNK_SYMBOLS)))

    # ------------------------------------------------------------------------------ splits
    def history(self, number: int) -> SplitHistory | None:
        """A symbol's splits, if it has any."""
        return self._histories.get(number)

    def add_split(self, number: int, split: Split) -> Division | None:
        """Learn a split; None when it was known."""
        history = self._histories.setdefault(number, SplitHistory())
        division = history.add(split)
        if division is None:
            return None
        if division.new_pair >= HOME_BASES and (division.new_pair - HOME_BASES) % EXTRA_BASES == 0:
            self._extra_blocks.setdefault(number, []).append(self._take_block())
        self.has_splits[number] = True
        self._dirty.add(number // CHUNK_SYMBOLS)
        return division

    def home_base(self, number: int, slot: int) -> int:
        """Key of a list in a symbol's home block."""
        return list_base(self._blocks[number], slot)

    def price_base(self, number: int, pair: int, side: int) -> int:
        """Key of a price list: `side` is ABOVE or BELOW."""
        if pair < HOME_BASES:
            return list_base(self._blocks[number], FIRST_PRICE_SLOT + pair * SLOTS_PER_BASIS + side)
        extra, at = divmod(pair - HOME_BASES, EXTRA_BASES)
        return list_base(self._extra_blocks[number][extra], at * SLOTS_PER_BASIS + side)

    def key_ranges(self, number: int) -> list[tuple[int, int]]:
        """(first, last) key of every list that a symbol has."""
        blocks = [self._blocks[number], *self._extra_blocks.get(number, [])]
        return [(list_base(block, 0), list_base(block + 1, 0) - 1) for block in blocks]

    # ------------------------------------------------------------------------------ state
    def write(self, state: StateMap) -> None:
        """Write the chunks that have changed."""
        for chunk in sorted(self._dirty):
            numbers = range(chunk * CHUNK_SYMBOLS, min((chunk + 1) * CHUNK_SYMBOLS, len(self.names)))
            state.put(symbols_key(chunk), bytes([CHUNK_VERSION]) + b"".join(map(self._encode, numbers)))
        self._dirty.clear()

    def _encode(self, number: int) -> bytes:
        name = self.names[number].encode()
        history, extra = self._histories.get(number), self._extra_blocks.get(number, [])
        splits = history.splits if history else []
        pairs = history.pairs if history else [0]
        times = self.times
        clock = (times.newest_ms[number], times.at_newest[number], times.seam_ms[number], times.left_at_seam[number])
        fixed = _SYMBOL.pack(len(name), *map(int, clock), len(splits), len(extra), self._blocks[number])
        parts = [fixed, name]
        parts += (_SPLIT.pack(split.effective_from_ms, split.new_shares, split.old_shares) for split in splits)
        parts += (_BLOCK.pack(pair) for pair in pairs)
        parts += (_BLOCK.pack(block) for block in extra)
        return b"".join(parts)

    @classmethod
    def read(cls, state: StateMap, count: int) -> SymbolTable:
        """The table of `count` symbols as written."""
        table = cls()
        for chunk in range(-(-count // CHUNK_SYMBOLS)):
            name = symbols_key(chunk)
            blob = state.get(name)
            if blob is None or blob[0] not in (CHUNK_VERSION, CHUNK_VERSION_WITHOUT_SEAMS):
                raise StateError(name, f"is missing or of a version above {CHUNK_VERSION}")
            at = 1
            for _ in range(min(CHUNK_SYMBOLS, count - chunk * CHUNK_SYMBOLS)):
                at = table._decode(blob, at, blob[0])
        table._next_block = count + sum(map(len, table._extra_blocks.values()))
        table._dirty.clear()
        return table

    def _decode(self, blob: bytes, at: int, version: int) -> int:
        if version == CHUNK_VERSION_WITHOUT_SEAMS:
            length, newest_ms, splits, extras, block = map(int, _SYMBOL_WITHOUT_SEAMS.unpack_from(blob, at))
            clock = (newest_ms, int(newest_ms > 0), NEVER, 0)
            at += _SYMBOL_WITHOUT_SEAMS.size
        else:
            length, *fixed, splits, extras, block = map(int, _SYMBOL.unpack_from(blob, at))
            clock = (fixed[0], fixed[1], fixed[2], fixed[3])
            at += _SYMBOL.size
        self._next_block = block
        number = self.add(blob[at : at + length].decode())
        times = self.times
        times.newest_ms[number], times.at_newest[number], times.seam_ms[number], times.left_at_seam[number] = clock
        at += length
        known = [Split(*_SPLIT.unpack_from(blob, at + i * _SPLIT.size)) for i in range(splits)]
        at += splits * _SPLIT.size
        numbers: list[int] = [_BLOCK.unpack_from(blob, at + i * _BLOCK.size)[0] for i in range(splits + 1 + extras)]
        if known:
            self._histories[number] = SplitHistory(known, numbers[: splits + 1])
            self.has_splits[number] = True
        if extras:
            self._extra_blocks[number] = numbers[splits + 1 :]
        return at + (splits + 1 + extras) * _BLOCK.size
