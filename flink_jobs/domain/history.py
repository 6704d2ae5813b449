"""A bucket's price history: one store, and per (symbol, window) a cursor that only ever moves forward.

Block numbers rise. Blocks below the newest are sealed and lie in the state; the newest is in memory and still grows.
A cursor is its reference tick (time, price) and the place of the next one: (block, lower bound of its time), so a
block is read only when the window really reaches it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.vocabulary import WINDOW_MS, WINDOWS
from flink_jobs.domain.feed_order import grown
from flink_jobs.domain.history_block import (
    MAX_EVENT_TIME_MS,
    TIME_BITS,
    Block,
    BlockError,
    decode_block,
    encode_block,
    key_of,
)
from flink_jobs.domain.rolling_frames import Int64s
from flink_jobs.domain.state import StateMap

BLOCK_TICKS: Final = 20_000  # of the bucket, in one sealed block
MAX_CACHED_BLOCKS: Final = 16  # unpacked sealed blocks in memory: about 5 MB
MAX_UNSORTED_TICKS: Final = 1_024
NEVER: Final = (1 << 63) - 1
SPANS: Final[Int64s] = np.array([WINDOW_MS[window] for window in WINDOWS], np.int64)
_W: Final = len(WINDOWS)
_TIME_MASK: Final = MAX_EVENT_TIME_MS - 1


def block_name(number: int) -> str:
    """State key of a sealed block."""
    return f"h{number}"


class _Walk(NamedTuple):
    """Cursors of a batch on their way, flat by (tick, window)."""

    slot: Int64s
    target_ms: Int64s
    found_ms: Int64s
    found_price: Int64s
    block: Int64s
    next_ms: Int64s


class History:
    """Ticks in, reference ticks out. `append` a batch first, then ask its `references`."""

    def __init__(
        self, state: StateMap, *, block_ticks: int = BLOCK_TICKS, cached_blocks: int = MAX_CACHED_BLOCKS
    ) -> None:
        self._state = state
        self._block_ticks = block_ticks
        self._cached_blocks = cached_blocks
        self._cache: OrderedDict[int, Block] = OrderedDict()
        self.first_block = 0
        self.newest_block = 0
        nothing = np.zeros(0, np.int64)
        self.block_min_ms, self.block_max_ms = nothing, nothing  # one a sealed block that is kept
        self.block_members: NDArray[np.uint8] = np.zeros((0, 0), np.uint8)  # sealed block by (slot >> 3); bit slot & 7
        self.recent = Block.of(nothing, nothing)  # the newest block, without what is unsorted
        self._unsorted: list[tuple[Int64s, Int64s]] = []
        self._unsorted_ticks = 0
        self.recent_first_ms = nothing  # by slot: time of its first tick in the newest block, NEVER: none
        cursors = np.zeros((0, _W), np.int64)
        self.reference_ms, self.reference_price, self.next_block, self.next_ms = cursors, cursors, cursors, cursors

    def add_slot(self, slot: int) -> None:
        """Room for one more symbol."""
        self.recent_first_ms = grown(self.recent_first_ms, slot + 1, NEVER)
        self.reference_ms = grown(self.reference_ms, slot + 1, 0)
        self.reference_price = grown(self.reference_price, slot + 1, 0)
        self.next_block = grown(self.next_block, slot + 1, 0)
        self.next_ms = grown(self.next_ms, slot + 1, NEVER)

    def append(self, slot: Int64s, time_ms: Int64s, price: Int64s, starts: NDArray[np.intp]) -> None:
        """Add ticks sorted by (slot, emitted order); `starts` are the places where a slot begins."""
        self._unsorted.append((key_of(slot, time_ms), price))
        self._unsorted_ticks += len(slot)
        first, first_ms = slot[starts], time_ms[starts]
        self.recent_first_ms[first] = np.minimum(self.recent_first_ms[first], first_ms)
        waiting = self.next_ms[first] == NEVER
        at, window = waiting.nonzero()
        self.next_ms[first[at], window] = first_ms[at]
        self.next_block[first[at], window] = self.newest_block
        if self._unsorted_ticks >= MAX_UNSORTED_TICKS:
            self._sort()

    def references(self, slot: Int64s, time_ms: Int64s, ends: NDArray[np.intp]) -> tuple[Int64s, Int64s]:
        """Reference (time, price) of each tick and window, (n, windows); price 0: none.

        The ticks are sorted by (slot, emitted order) and already appended; `ends` are each slot's last places.
        """
        target = time_ms[:, None] - SPANS
        found_ms, found_price = self.reference_ms[slot], self.reference_price[slot]
        block, next_ms = self.next_block[slot], self.next_ms[slot]
        todo = np.flatnonzero(next_ms <= target)
        if len(todo):
            walk = _Walk(np.repeat(slot, _W), *(c.ravel() for c in (target, found_ms, found_price, block, next_ms)))
            while len(todo):
                numbers = walk.block[todo]
                rest = [self._through(n, walk, todo[numbers == n]) for n in sorted(set(numbers.tolist()))]
                todo = np.concatenate(rest) if len(rest) > 1 else rest[0]
            last = slot[ends]
            self.reference_ms[last], self.reference_price[last] = found_ms[ends], found_price[ends]
            self.next_block[last], self.next_ms[last] = block[ends], next_ms[ends]
        return found_ms, found_price

    def _through(self, number: int, walk: _Walk, todo: NDArray[np.intp]) -> NDArray[np.intp]:
        """Move cursors (places `todo`) through one block; those that must go on in a later one."""
        slot = walk.slot[todo]
        if number >= self.first_block:
            here = self._block(number)
            at = here.keys.searchsorted(key_of(slot, walk.target_ms[todo]), "right")
            before, after = here.keys[at - 1], here.keys[at]  # at = 0: the sentinel, which is nobody's
            hit = (before >> TIME_BITS) == slot
            places = todo[hit]
            walk.found_ms[places] = before[hit] & _TIME_MASK
            walk.found_price[places] = here.prices[at[hit] - 1]
            walk.next_ms[todo] = after & _TIME_MASK
            done = (after >> TIME_BITS) != slot
            todo, slot = todo[done], slot[done]
            if not len(todo):
                return todo
        if number == self.newest_block:
            walk.next_ms[todo] = NEVER
            return todo[:0]
        walk.block[todo], walk.next_ms[todo] = self._next_of(number, slot)
        return todo[walk.next_ms[todo] <= walk.target_ms[todo]]

    def _next_of(self, number: int, slot: Int64s) -> tuple[Int64s, Int64s]:
        """Per slot the next block after `number` that holds it, and a lower bound of its first time there."""
        ahead = np.full(len(slot), max(number + 1, self.first_block), np.int64)
        byte, bit = slot >> 3, (slot & 7).astype(np.uint8)
        todo = np.arange(len(slot))
        sealed = self.newest_block - self.first_block
        while True:
            at = ahead[todo] - self.first_block
            todo = todo[at < sealed]
            if not len(todo):
                break
            members = self.block_members[ahead[todo] - self.first_block, byte[todo]]
            missing = members >> bit[todo] & 1 == 0
            todo = todo[missing]
            if not len(todo):
                break
            ahead[todo] += 1
        bound = self.recent_first_ms[slot]
        inside = ahead < self.newest_block
        bound[inside] = self.block_min_ms[ahead[inside] - self.first_block]
        return ahead, bound

    def _block(self, number: int) -> Block:
        if number == self.newest_block:
            self._sort()
            return self.recent
        block = self._cache.get(number)
        if block is not None:
            self._cache.move_to_end(number)
            return block
        blob = self._state.get(block_name(number))
        if blob is None:
            raise BlockError(f"history block {number} is missing from the state; restore from another checkpoint")
        block = decode_block(blob)
        self._keep(number, block)
        return block

    def _keep(self, number: int, block: Block) -> None:
        self._cache[number] = block
        if len(self._cache) > self._cached_blocks:
            self._cache.popitem(last=False)

    def _sort(self) -> None:
        """Take the unsorted ticks into the newest block."""
        if not self._unsorted:
            return
        keys = np.concatenate([part[0] for part in self._unsorted])
        prices = np.concatenate([part[1] for part in self._unsorted])
        self._unsorted, self._unsorted_ticks = [], 0
        order = np.argsort(keys, kind="stable")
        keys, prices = keys[order], prices[order]
        at = self.recent.keys.searchsorted(keys, "right") + np.arange(len(keys))  # their places in the joined block
        old = np.ones(len(self.recent.keys) + len(keys), np.bool_)
        old[at] = False
        joined_keys, joined_prices = np.empty(len(old), np.int64), np.empty(len(old) - 1, np.int64)
        joined_keys[at], joined_keys[old] = keys, self.recent.keys
        joined_prices[at], joined_prices[old[:-1]] = prices, self.recent.prices
        self.recent = Block(joined_keys, joined_prices)

    def seal_when_full(self) -> bool:
        """Write the newest block to the state when it has its size. True: it was sealed."""
        if len(self.recent) + self._unsorted_ticks < self._block_ticks:
            return False
        self._sort()
        block, number = self.recent, self.newest_block
        self._state.put(block_name(number), encode_block(block))
        self._keep(number, block)
        times = block.times_ms()
        self.block_min_ms = np.append(self.block_min_ms, times.min())
        self.block_max_ms = np.append(self.block_max_ms, times.max())
        self._add_members(block.slots())
        self.newest_block += 1
        nothing = np.zeros(0, np.int64)
        self.recent = Block.of(nothing, nothing)
        self.recent_first_ms[:] = NEVER
        return True

    def _add_members(self, slots: Int64s) -> None:
        width = (len(self.recent_first_ms) + 7) // 8
        present = np.zeros(width * 8, np.bool_)
        present[slots] = True
        rows, known = self.block_members.shape
        wider = np.zeros((rows + 1, width), np.uint8)
        wider[:rows, :known] = self.block_members
        wider[rows] = np.packbits(present, bitorder="little")
        self.block_members = wider

    def drop_older(self, reach_ms: Int64s) -> int:
        """Remove the oldest sealed blocks while no member slot can need them; their number.

        `reach_ms`: by slot, the oldest time that a later reference may have; NEVER for a slot that is over.
        """
        dropped = 0
        while dropped < len(self.block_max_ms):
            members = np.flatnonzero(np.unpackbits(self.block_members[dropped], bitorder="little"))
            if int(self.block_max_ms[dropped]) >= int(reach_ms[members].min()):
                break
            self._cache.pop(self.first_block + dropped, None)
            self._state.remove(block_name(self.first_block + dropped))
            dropped += 1
        if dropped:
            self.first_block += dropped
            self.block_min_ms, self.block_max_ms = self.block_min_ms[dropped:], self.block_max_ms[dropped:]
            self.block_members = self.block_members[dropped:]
        return dropped

    def recent_block(self) -> Block:
        """The unsealed ticks, sorted."""
        return self._block(self.newest_block)

    def restore_recent(self, slot: Int64s, time_ms: Int64s, price: Int64s) -> None:
        """Put unsealed ticks back (sorted by slot, emitted order)."""
        self.recent = Block.of(key_of(slot, time_ms), price)
        first, at = np.unique(slot, return_index=True)
        self.recent_first_ms[first] = time_ms[at]
