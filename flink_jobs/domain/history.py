"""A bucket's price history: one store, and per (symbol, window) a cursor that only ever moves forward.

Block numbers rise. Blocks below the newest are sealed and lie in the state; the newest is in memory and still grows.
A cursor is its reference tick (time, price), a few ticks that follow it, read ahead out of one block, and the place of
the next one: (block, lower bound of its time). So a block is read only when the window really reaches it, and most
steps of a cursor read none.
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
MAX_UNSORTED_TICKS: Final = 4_096
AHEAD: Final = 8  # ticks that a cursor has read ahead at most; a kilobyte a symbol; `references` counts on 8
NEVER: Final = (1 << 63) - 1
SPANS: Final[Int64s] = np.array([WINDOW_MS[window] for window in WINDOWS], np.int64)
_W: Final = len(WINDOWS)
_TIME_MASK: Final = MAX_EVENT_TIME_MS - 1
_STEPS: Final = np.arange(AHEAD + 1)


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
    ahead_block: Int64s  # -1: nothing was read ahead
    ahead_ms: Int64s  # (places, AHEAD)
    ahead_price: Int64s


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
        self.reference_ms, self.reference_price = cursors, cursors
        self._next_block, self._next_ms = cursors, cursors  # behind what was read ahead; NEVER: nothing there yet
        self._ahead_block = cursors
        ahead = np.zeros((0, _W, AHEAD), np.int64)
        self._ahead_ms, self._ahead_price = ahead, ahead  # rising; NEVER: no more

    def add_slot(self, slot: int) -> None:
        """Room for one more symbol."""
        self.recent_first_ms = grown(self.recent_first_ms, slot + 1, NEVER)
        self.reference_ms = grown(self.reference_ms, slot + 1, 0)
        self.reference_price = grown(self.reference_price, slot + 1, 0)
        self._next_block = grown(self._next_block, slot + 1, 0)
        self._next_ms = grown(self._next_ms, slot + 1, NEVER)
        self._add_ahead(slot + 1)

    def _add_ahead(self, slots: int) -> None:
        self._ahead_block = grown(self._ahead_block, slots, -1)
        self._ahead_ms = grown(self._ahead_ms, slots, NEVER)
        self._ahead_price = grown(self._ahead_price, slots, 0)

    def places(self, slots: int) -> tuple[Int64s, Int64s]:
        """(block, lower bound of the time) of the tick behind each cursor's reference, (slots, windows)."""
        ahead = self._ahead_ms[:slots]
        left = ahead > self.reference_ms[:slots, :, None]
        first_ms = np.where(left, ahead, NEVER).min(axis=2)
        inside = first_ms < NEVER
        block = np.where(inside, self._ahead_block[:slots], self._next_block[:slots])
        return block, np.where(inside, first_ms, self._next_ms[:slots])

    def restore_cursors(self, reference_ms: Int64s, reference_price: Int64s, block: Int64s, next_ms: Int64s) -> None:
        """Put cursors back, a row a slot, their places as `places` gave them."""
        self.reference_ms, self.reference_price = reference_ms, reference_price
        self._next_block, self._next_ms = block, next_ms
        self._add_ahead(len(reference_ms))

    def append(self, slot: Int64s, time_ms: Int64s, price: Int64s, starts: NDArray[np.intp]) -> None:
        """Add ticks sorted by (slot, emitted order); `starts` are the places where a slot begins."""
        self._unsorted.append((key_of(slot, time_ms), price))
        self._unsorted_ticks += len(slot)
        first, first_ms = slot[starts], time_ms[starts]
        self.recent_first_ms[first] = np.minimum(self.recent_first_ms[first], first_ms)
        waiting = self._next_ms[first] == NEVER
        at, window = waiting.nonzero()
        self._next_ms[first[at], window] = first_ms[at]
        self._next_block[first[at], window] = self.newest_block
        if self._unsorted_ticks >= MAX_UNSORTED_TICKS:
            self._sort()

    def references(
        self, slot: Int64s, time_ms: Int64s, before_ms: Int64s, before_price: Int64s, ends: NDArray[np.intp]
    ) -> tuple[Int64s, Int64s]:
        """Reference (time, price) of each tick and window, (n, windows); price 0: none.

        The ticks are sorted by (slot, emitted order) and already appended; `before_*` is each one's predecessor of its
        slot (price 0: none), `ends` are each slot's last places.
        """
        target = time_ms[:, None] - SPANS
        is_passed = self._ahead_ms[slot] <= target[:, :, None]
        passed = np.bitwise_count(is_passed.view(np.uint64)).ravel()  # AHEAD flags are one word
        found_ms, found_price = self.reference_ms[slot], self.reference_price[slot]
        at = passed.nonzero()[0]
        if len(at):
            tick = (slot[at // _W] * _W + at % _W) * AHEAD + passed[at] - 1
            found_ms.ravel()[at] = self._ahead_ms.ravel()[tick]
            found_price.ravel()[at] = self._ahead_price.ravel()[tick]
        beyond = self._next_ms[slot] <= target
        last = slot[ends]
        if beyond.any():
            self._go_on(slot, target, (time_ms, before_ms, before_price), (found_ms, found_price, beyond), ends)
        self.reference_ms[last], self.reference_price[last] = found_ms[ends], found_price[ends]
        return found_ms, found_price

    def _go_on(
        self, slot: Int64s, target: Int64s, tick: tuple[Int64s, Int64s, Int64s],
        found: tuple[Int64s, Int64s, NDArray[np.bool_]], ends: NDArray[np.intp],
    ) -> None:  # fmt: skip
        """The references that lie behind what was read ahead: the tick's predecessor, or whatever blocks say."""
        (time_ms, before_ms, before_price), (found_ms, found_price, beyond) = tick, found
        newest = beyond & (before_ms[:, None] <= target) & (before_price > 0)[:, None]
        is_end = np.zeros(len(slot), np.bool_)
        is_end[ends] = True
        behind = beyond & ~newest
        if behind.any():  # first: these begin where the cursors still stand
            self._walk(slot, target, (found_ms, found_price, behind), is_end)
        at, window = newest.nonzero()
        if len(at):
            found_ms[at, window], found_price[at, window] = before_ms[at], before_price[at]
            stays = is_end[at]
            at, window = at[stays], window[stays]
            self._set_place(slot[at], window, self.newest_block, time_ms[at])
            self._ahead_ms[slot[at], window] = NEVER

    def _walk(
        self, slot: Int64s, target: Int64s, found: tuple[Int64s, Int64s, NDArray[np.bool_]], is_end: NDArray[np.bool_]
    ) -> None:
        """Look into blocks for the (tick, window) that the flags of `found` name, and write there what is found."""
        found_ms, found_price, behind = found
        at, window = behind.nonzero()
        slots = slot[at]
        walk = _Walk(
            slots, target[at, window], found_ms[at, window], found_price[at, window],
            self._next_block[slots, window], self._next_ms[slots, window], np.full(len(at), -1, np.int64),
            np.full((len(at), AHEAD), NEVER, np.int64), np.zeros((len(at), AHEAD), np.int64),
        )  # fmt: skip
        todo = np.arange(len(at))
        while len(todo):
            numbers = walk.block[todo]
            rest = [self._through(n, walk, todo[numbers == n]) for n in sorted(set(numbers.tolist()))]
            todo = np.concatenate(rest) if len(rest) > 1 else rest[0]
        found_ms[at, window], found_price[at, window] = walk.found_ms, walk.found_price
        stays = is_end[at].nonzero()[0]
        slots, window = slots[stays], window[stays]
        self._set_place(slots, window, walk.block[stays], walk.next_ms[stays])
        self._ahead_block[slots, window] = walk.ahead_block[stays]
        self._ahead_ms[slots, window] = walk.ahead_ms[stays]
        self._ahead_price[slots, window] = walk.ahead_price[stays]

    def _set_place(self, slot: Int64s, window: NDArray[np.intp], block: Int64s | int, next_ms: Int64s) -> None:
        self._next_block[slot, window], self._next_ms[slot, window] = block, next_ms

    def _through(self, number: int, walk: _Walk, todo: NDArray[np.intp]) -> NDArray[np.intp]:
        """Move cursors (places `todo`) through one block and read ahead there; those that must go on in a later one."""
        slot = walk.slot[todo]
        if number >= self.first_block:
            here = self._block(number)
            at = here.keys.searchsorted(key_of(slot, walk.target_ms[todo]), "right")
            before = here.keys[at - 1]  # at = 0: the sentinel, which is nobody's
            hit = (before >> TIME_BITS) == slot
            places = todo[hit]
            walk.found_ms[places] = before[hit] & _TIME_MASK
            walk.found_price[places] = here.prices[at[hit] - 1]
            following = at[:, None] + _STEPS
            keys = here.keys.take(following, mode="clip")
            mine = (keys >> TIME_BITS) == slot[:, None]
            walk.ahead_ms[todo] = np.where(mine[:, :AHEAD], keys[:, :AHEAD] & _TIME_MASK, NEVER)
            walk.ahead_price[todo] = here.prices.take(following[:, :AHEAD], mode="clip")
            walk.ahead_block[todo] = number
            more = mine[:, AHEAD]
            walk.next_ms[todo[more]] = keys[more, AHEAD] & _TIME_MASK
            todo, slot, stays = todo[~more], slot[~more], mine[~more, 0]
            if not len(todo):
                return todo
        else:
            stays = np.zeros(len(todo), np.bool_)
        if number == self.newest_block:
            walk.next_ms[todo] = NEVER
            return todo[:0]
        block, bound_ms = self._next_of(number, slot)
        # what was read ahead is later than the target, and what follows is no earlier than that
        newest_ms = np.where(walk.ahead_ms[todo] < NEVER, walk.ahead_ms[todo], 0).max(axis=1)
        walk.block[todo], walk.next_ms[todo] = block, np.maximum(bound_ms, newest_ms)
        left: NDArray[np.intp] = todo[~stays & (walk.next_ms[todo] <= walk.target_ms[todo])]
        return left

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
            # a restored core doesn't find them either
            self._ahead_ms[self._ahead_block < self.first_block] = NEVER
        return dropped

    def recent_block(self) -> Block:
        """The unsealed ticks, sorted."""
        return self._block(self.newest_block)

    def restore_recent(self, slot: Int64s, time_ms: Int64s, price: Int64s) -> None:
        """Put unsealed ticks back (sorted by slot, emitted order)."""
        self.recent = Block.of(key_of(slot, time_ms), price)
        first, at = np.unique(slot, return_index=True)
        self.recent_first_ms[first] = time_ms[at]
