"""Feed order: which tick of a bucket is emitted when, and which is rejected, duplicate or late.

A tick that simply continues its symbol's sequence takes the columnar path; every other symbol's ticks of that
stretch go entry by entry. Symbols meet only in the frontier, which no tick moves, so both give the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from contracts.vocabulary import DEFAULT_REORDER_MS, MAX_SCALED_PRICE, MAX_SEQUENCE_JUMP
from flink_jobs.domain.history_block import MAX_EVENT_TIME_MS, MAX_SLOTS
from flink_jobs.domain.rolling_frames import Bools, Int64s, PriceFrame
from flink_jobs.domain.sequence_runs import SequenceRuns
from flink_jobs.domain.tick_account import Reason, Tick, TickAccount

MAX_HELD: Final = 4_096  # ticks of one symbol that wait for a sequence; beyond it the oldest goes first
NO_TIME: Final = -1
_LOWEST_SEQUENCE: Final = -(1 << 63)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Emitted ticks, equally long columns in emitted order."""

    slot: Int64s
    time_ms: Int64s
    price_scaled: Int64s
    sequence: Int64s
    session: Int64s

    def __len__(self) -> int:
        return len(self.slot)

    @staticmethod
    def joined(parts: Sequence[Ticks]) -> Ticks:
        """All parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        columns = ("slot", "time_ms", "price_scaled", "sequence", "session")
        return Ticks(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))

    def row(self, at: int) -> Ticks:
        """The one tick at a place."""
        columns = (self.slot, self.time_ms, self.price_scaled, self.sequence, self.session)
        return Ticks(*(column[at : at + 1] for column in columns))


@dataclass(slots=True)
class Waiting:
    """What only a symbol out of order has: held ticks, void sequences ahead, gaps behind its last sequence."""

    held: list[tuple[int, int, int]] = field(default_factory=list)  # (time_ms, price, sequence), in order of arrival
    void: SequenceRuns = field(default_factory=SequenceRuns)  # above last_sequence: will never be emitted
    gaps: SequenceRuns | None = None  # at or below last_sequence: neither emitted nor void


def grown(column: Int64s, rows: int, fill: int) -> Int64s:
    """The column with at least `rows` rows; new ones hold `fill`."""
    if rows <= len(column):
        return column
    larger = np.full((max(rows, 2 * len(column), 64), *column.shape[1:]), fill, column.dtype)
    larger[: len(column)] = column
    return larger


class FeedOrder:
    """The order of one bucket's feed. Per symbol slot: session, last sequence, newest time seen, last time emitted."""

    def __init__(self, *, entrywise: bool = False) -> None:
        self.frontier_ms = 0
        self.reorder_ms = DEFAULT_REORDER_MS
        self.max_ahead_ms = 0  # 0: no bound
        self.account = TickAccount()
        self.symbols: list[str] = []  # by slot
        self.slot_of: dict[str, int] = {}
        self.waiting: dict[int, Waiting] = {}
        empty = np.zeros(0, np.int64)
        self.session, self.last_sequence, self.newest_ms, self.last_ms = empty, empty, empty, empty
        self.irregular = empty  # 1: has held ticks or void sequences
        self._entrywise = entrywise
        self._emitted: list[tuple[int, int, int, int, int, int]] = []  # (row, slot, time, price, sequence, session)

    # -- controls
    def add_symbol(self, symbol: str) -> int | None:
        """A fresh slot for an instrument record; an earlier slot of the symbol is over. None: the bucket is full."""
        slot = len(self.symbols)
        if slot >= MAX_SLOTS:
            return None
        before = self.slot_of.get(symbol)
        if before is not None:
            self.waiting.pop(before, None)
        self.symbols.append(symbol)
        self.slot_of[symbol] = slot
        self.session, self.last_sequence = grown(self.session, slot + 1, 0), grown(self.last_sequence, slot + 1, 0)
        self.newest_ms, self.last_ms = grown(self.newest_ms, slot + 1, 0), grown(self.last_ms, slot + 1, NO_TIME)
        self.irregular = grown(self.irregular, slot + 1, 0)
        self.newest_ms[slot] = 0  # heartbeats move the spare rows too
        return slot

    def heartbeat(self, now_ms: int) -> Ticks:
        """The stream has passed a time: what is held up to it is emitted, then the frontier moves."""
        now_ms = min(now_ms, MAX_EVENT_TIME_MS)
        seen = np.where(self.newest_ms == 0, now_ms, self.newest_ms)
        self.newest_ms = np.maximum(seen, now_ms + self.reorder_ms)
        for slot in sorted(slot for slot, waiting in self.waiting.items() if waiting.held):
            self._release(0, slot)
        self.frontier_ms = max(self.frontier_ms, now_ms)
        return self._take_emitted()

    def flush(self) -> Ticks:
        """The source has ended: everything held is released."""
        for slot in sorted(slot for slot, waiting in self.waiting.items() if waiting.held):
            self._release(0, slot, everything=True)
        return self._take_emitted()

    # -- ticks
    def ticks(self, frame: PriceFrame, begin: int, end: int) -> Ticks:
        """Rows begin..end of a frame, with no control between: what they make the feed emit."""
        dictionary = np.array([self.slot_of.get(name, -1) for name in frame.symbols], np.int64)
        slots = dictionary[frame.symbol_index[begin:end]]
        times, prices = frame.event_time_ms[begin:end], frame.price_scaled[begin:end]
        sequences, sessions = frame.sequence[begin:end], frame.session[begin:end]
        rows = Ticks(slots, times, prices, sequences, sessions)
        odd = np.ones(len(slots), np.bool_) if self._entrywise or not len(self.symbols) else self._regular(rows)
        if odd is None:
            return rows
        places = np.flatnonzero(odd)
        columns = (c[odd].tolist() for c in (slots, times, prices, sequences, sessions))
        for row, slot, *tick in zip(places.tolist(), *columns, strict=True):
            if slot < 0:
                name = frame.symbols[int(frame.symbol_index[begin + row])]
                self.account.reject(name, Tick(*tick), Reason.UNKNOWN_SYMBOL)
            else:
                self._entry(row, slot, Tick(*tick))
        slow = np.array(self._emitted, np.int64).reshape(-1, 6).T
        self._emitted = []
        even = np.flatnonzero(~odd)
        by_place = np.argsort(np.concatenate([even, slow[0]]), kind="stable")
        fast = (slots, times, prices, sequences, sessions)
        return Ticks(*(np.concatenate([f[even], s])[by_place] for f, s in zip(fast, slow[1:], strict=True)))

    def _regular(self, rows: Ticks) -> Bools | None:
        """Apply the ticks of every symbol that has nothing unusual; the mask of the others, None: there are none."""
        order = np.argsort(rows.slot, kind="stable")
        slot, time, price = rows.slot[order], rows.time_ms[order], rows.price_scaled[order]
        sequence, session = rows.sequence[order], rows.session[order]
        head = np.empty(len(slot), np.bool_)
        head[0] = True
        np.not_equal(slot[1:], slot[:-1], out=head[1:])
        starts = np.flatnonzero(head)
        lengths = np.empty_like(starts)
        lengths[:-1], lengths[-1] = starts[1:] - starts[:-1], len(slot) - starts[-1]
        before = np.empty_like(time)
        before[1:] = time[:-1]
        before[starts] = self.last_ms[slot[starts]]
        numbered = sequence != 0
        count = np.cumsum(numbered)
        expected = count + np.repeat(self.last_sequence[slot[starts]] - count[starts] + numbered[starts], lengths)
        floor_ms = np.maximum(before, self.frontier_ms)
        good = (time >= floor_ms) & (time < MAX_EVENT_TIME_MS) & (price > 0) & (price < MAX_SCALED_PRICE)
        good &= (session == self.session[slot]) & (self.irregular[slot] == 0) & (slot >= 0)
        good &= (sequence == expected) | ~numbered
        if self.max_ahead_ms:
            good &= (floor_ms <= 0) | (time <= floor_ms + self.max_ahead_ms)
        odd = None
        ends = starts + lengths - 1
        if not good.all():
            group_good = np.logical_and.reduceat(good, starts)
            odd = np.empty(len(slot), np.bool_)
            odd[order] = np.repeat(~group_good, lengths)
            ends = ends[group_good]
        last = slot[ends]
        self.last_sequence[last] = expected[ends]
        self.last_ms[last] = time[ends]
        self.newest_ms[last] = np.maximum(self.newest_ms[last], time[ends])
        return odd

    def _entry(self, row: int, slot: int, tick: Tick) -> None:
        """One tick, judged in the order: price and bounds, session, known sequence, lateness."""
        name, session = self.symbols[slot], int(self.session[slot])
        if slot not in self.waiting:
            self.waiting[slot] = Waiting()
        last = int(self.last_sequence[slot]) if tick.session == session else 0
        wild = tick.sequence > last + MAX_SEQUENCE_JUMP
        if not 0 < tick.price_scaled < MAX_SCALED_PRICE:
            reason = Reason.INVALID_PRICE
        elif self._is_ahead(slot, tick.time_ms):
            reason = Reason.AHEAD_OF_FEED
        elif wild:
            reason = Reason.SEQUENCE_JUMP
        else:
            self._valid(row, slot, tick)
            return
        self.account.reject(name, tick, reason)
        if tick.session == session and not wild:
            self._consume(row, slot, tick.sequence)

    def _valid(self, row: int, slot: int, tick: Tick) -> None:
        """A tick that was not rejected: hold it, unless its session, sequence or time is over."""
        name, session = self.symbols[slot], int(self.session[slot])
        if tick.session < session:
            self.account.miss(name, tick, Reason.SESSION_OVER)
            return
        if tick.session > session:
            self._release(row, slot, everything=True)
            self.session[slot], self.last_sequence[slot], self.irregular[slot] = tick.session, 0, 0
            self.waiting[slot] = Waiting()
        if tick.sequence and self._known(slot, tick.sequence):
            self.account.repeat(name, tick)
            return
        behind = (tick.sequence and tick.sequence <= int(self.last_sequence[slot])) or tick.time_ms < self.last_ms[slot]
        if behind or tick.time_ms < self.frontier_ms:
            self.account.miss(name, tick, Reason.BEHIND_EMITTED if behind else Reason.BEHIND_FRONTIER)
            self._consume(row, slot, tick.sequence)
            return
        self.newest_ms[slot] = max(int(self.newest_ms[slot]) or tick.time_ms, tick.time_ms)
        self.waiting[slot].held.append((tick.time_ms, tick.price_scaled, tick.sequence))
        self._release(row, slot)

    def _is_ahead(self, slot: int, time_ms: int) -> bool:
        """Whether a time is further ahead than the bound of the frontier, the last emitted and every held tick."""
        held = (tick[0] for tick in self.waiting[slot].held)
        newest = max(self.frontier_ms, int(self.last_ms[slot]), *held)
        return time_ms >= MAX_EVENT_TIME_MS or (newest > 0 and 0 < self.max_ahead_ms < time_ms - newest)

    def _known(self, slot: int, sequence: int) -> bool:
        waiting = self.waiting[slot]
        if any(held[2] == sequence for held in waiting.held):
            return True
        if sequence > int(self.last_sequence[slot]):
            return sequence in waiting.void
        return sequence > 0 if waiting.gaps is None else sequence not in waiting.gaps

    def _void(self, slot: int, sequence: int) -> None:
        waiting = self.waiting[slot]
        if sequence > int(self.last_sequence[slot]):
            waiting.void.add(sequence, sequence)
        else:
            self._gaps(waiting).remove(sequence, sequence)

    def _consume(self, row: int, slot: int, sequence: int) -> None:
        """Nothing will wait for this sequence any more."""
        if sequence and not self._known(slot, sequence):
            self._void(slot, sequence)
            self._release(row, slot)

    @staticmethod
    def _gaps(waiting: Waiting) -> SequenceRuns:
        if waiting.gaps is None:
            waiting.gaps = SequenceRuns([(_LOWEST_SEQUENCE, 0)])
        return waiting.gaps

    def _release(self, row: int, slot: int, *, everything: bool = False) -> None:
        """Emit the next sequence at once; wait for a missing one until the reorder bound has passed."""
        waiting, held = self.waiting[slot], self.waiting[slot].held
        while held:
            following = waiting.void.end_of_run(int(self.last_sequence[slot]) + 1) + 1
            at = next((i for i, one in enumerate(held) if one[2] in (0, following)), None)
            if at is None:
                at = min(range(len(held)), key=lambda i: (held[i][0], held[i][2]))
                bound = int(self.newest_ms[slot]) - self.reorder_ms
                if not everything and held[at][0] > bound and len(held) <= MAX_HELD:
                    break
            time, price, sequence = held.pop(at)
            session, last = int(self.session[slot]), int(self.last_sequence[slot])
            if time < int(self.last_ms[slot]) or (sequence and sequence <= last):
                tick = Tick(time, price, sequence, session)
                self.account.miss(self.symbols[slot], tick, Reason.BEHIND_EMITTED)
                if sequence:
                    self._void(slot, sequence)
                continue
            if sequence:
                self._advance(waiting, last, sequence)
                self.last_sequence[slot] = sequence
            self.last_ms[slot] = time
            self._emitted.append((row, slot, time, price, sequence, session))
        self.irregular[slot] = 1 if held or waiting.void else 0

    def _advance(self, waiting: Waiting, last: int, sequence: int) -> None:
        """The last sequence moves up: what was skipped and isn't void is a gap from now on."""
        if sequence == last + 1:
            return
        gaps = self._gaps(waiting)
        gaps.add(last + 1, sequence - 1)
        for first, until in waiting.void.runs():
            gaps.remove(first, min(until, sequence - 1))
        waiting.void.remove(last + 1, sequence)

    def _take_emitted(self) -> Ticks:
        columns = np.array(self._emitted, np.int64).reshape(-1, 6).T
        self._emitted = []
        return Ticks(*columns[1:])
