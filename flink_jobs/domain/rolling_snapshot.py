"""The rolling core's memory and how it lies in the state: base snapshots and a journal ring of the frames since."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import zstandard
from google.protobuf.message import DecodeError

from contracts.vocabulary import WINDOWS
from flink_jobs.domain import rolling_state_pb2 as pb
from flink_jobs.domain.feed_order import NO_TIME, FeedOrder, Waiting, grown
from flink_jobs.domain.history import NEVER, History
from flink_jobs.domain.history_block import TIME_BITS
from flink_jobs.domain.rolling_changes import UNDEFINED, RollingChanges
from flink_jobs.domain.rolling_frames import Int64s
from flink_jobs.domain.rolling_output import Numbering
from flink_jobs.domain.routes import Route, Routes
from flink_jobs.domain.sequence_runs import SequenceRuns
from flink_jobs.domain.state import StateMap

JOURNAL_FRAMES: Final = 512  # frames between two bases at most: what a restore applies again
MAX_BASE_BYTES: Final = 1 << 30
BASE_KEY: Final = "base"
_BASE_VERSION: Final = 2  # 1: without routes that move, which its code would not have kept
_READ_VERSIONS: Final = (b"\x01", b"\x02")
_JOURNAL_VERSION: Final = 1
_JOURNAL_HEADER: Final = struct.Struct("<BQ")  # version, number of the frame
_W: Final = len(WINDOWS)


class StateVersionError(ValueError):
    """State that this code can't read: `entry` names it. Run the code that wrote it, or restore an older checkpoint."""

    def __init__(self, entry: str, detail: str) -> None:
        super().__init__(
            f"rolling state entry {entry!r}: {detail}; run the version that wrote it or restore an older checkpoint"
        )
        self.entry = entry
        self.detail = detail


@dataclass(slots=True)
class RollingMemory:
    """Everything that a rolling core knows, sealed history excepted."""

    numbering: Numbering
    order: FeedOrder
    changes: RollingChanges
    routes: Routes
    frame_count: int = 0
    lease: int = 0
    frame_number: int = 0
    control_number: int = 0


class Journal:
    """Base snapshots and the frames since, over one StateMap: one put a frame."""

    def __init__(self, state: StateMap) -> None:
        self._state = state
        self._base_frame = 0

    def is_full(self, frame_count: int) -> bool:
        """Whether the frame of this number needs a base instead of a journal entry."""
        return frame_count - self._base_frame > JOURNAL_FRAMES

    def write_frame(self, frame_count: int, frame: bytes) -> None:
        """Keep a frame that was just applied as number `frame_count`."""
        entry = _JOURNAL_HEADER.pack(_JOURNAL_VERSION, frame_count) + frame
        self._state.put(f"j{frame_count % JOURNAL_FRAMES}", entry)

    def write_base(self, memory: RollingMemory) -> None:
        """Snapshot the memory; the journal begins anew."""
        packed = zstandard.ZstdCompressor(level=1).compress(encode_base(memory).SerializeToString())
        self._state.put(BASE_KEY, bytes([_BASE_VERSION]) + packed)
        self._base_frame = memory.frame_count

    def load_base(self, memory: RollingMemory) -> bool:
        """Fill an empty memory from the last base; False: the state is empty. Raises StateVersionError."""
        blob = self._state.get(BASE_KEY)
        if blob is None:
            return False
        if blob[:1] not in _READ_VERSIONS:
            raise StateVersionError(BASE_KEY, f"version {blob[:1].hex()}, this code reads 1 to {_BASE_VERSION}")
        try:
            raw = zstandard.ZstdDecompressor().decompress(blob[1:], max_output_size=MAX_BASE_BYTES)
            decode_base(pb.Base.FromString(raw), memory)
        except (zstandard.ZstdError, DecodeError, ValueError) as error:
            raise StateVersionError(BASE_KEY, f"damaged ({error})") from error
        self._base_frame = memory.frame_count
        return True

    def frames_since_base(self, base_frame: int) -> Iterator[bytes]:
        """The frames applied after the base, in order. Raises StateVersionError."""
        for number in range(base_frame + 1, base_frame + JOURNAL_FRAMES + 1):
            name = f"j{number % JOURNAL_FRAMES}"
            entry = self._state.get(name)
            if entry is None:
                return
            if entry[0] != _JOURNAL_VERSION:
                raise StateVersionError(name, f"version {entry[0]}, this code reads {_JOURNAL_VERSION}")
            if _JOURNAL_HEADER.unpack_from(entry)[1] != number:
                return
            yield entry[_JOURNAL_HEADER.size :]


def _pack(column: Int64s) -> bytes:
    return column.astype("<i8").tobytes()


def _flags(column: Int64s) -> bytes:
    return column.astype("<u1").tobytes()


def _unpack(data: bytes, dtype: str = "<i8") -> Int64s:
    return np.frombuffer(data, dtype).astype(np.int64)


def _runs(runs: SequenceRuns | None) -> bytes:
    return b"" if runs is None else _pack(np.array(runs.runs(), np.int64))


def _read_runs(data: bytes) -> SequenceRuns:
    return SequenceRuns([(first, last) for first, last in _unpack(data).reshape(-1, 2).tolist()])


def encode_base(memory: RollingMemory) -> pb.Base:
    """The memory as a message; nothing in it may wait to be evaluated."""
    order, counts, numbering = memory.order, memory.order.account, memory.numbering
    return pb.Base(
        frame_count=memory.frame_count, epoch=numbering.epoch, lease=memory.lease,
        control_number=memory.control_number, rejected=counts.rejected, duplicate=counts.duplicate, late=counts.late,
        audit_number=numbering.audit, shard_number=numbering.shards,
        routes=[
            pb.Route(symbol=symbol, shards=route.shards, version=route.version, previous_shards=route.previous_shards)
            for symbol, route in memory.routes.of.items()
        ],
        order=_encode_order(order), changes=_encode_changes(memory.changes, len(order.symbols)),
        history=_encode_history(memory.changes.history, len(order.symbols)), frame_number=memory.frame_number,
    )  # fmt: skip


def _encode_order(order: FeedOrder) -> pb.Order:
    slots = len(order.symbols)
    live = np.zeros(slots, np.int64)
    live[list(order.slot_of.values())] = 1
    waiting = []
    for slot, one in order.waiting.items():
        if one.held or one.void or one.gaps is not None:
            held = np.array(one.held, np.int64).reshape(-1, 3)
            waiting.append(
                pb.Waiting(
                    slot=slot, held_time_ms=_pack(held[:, 0]), held_price_scaled=_pack(held[:, 1]),
                    held_sequence=_pack(held[:, 2]), void_runs=_runs(one.void), gap_runs=_runs(one.gaps),
                    has_gaps=one.gaps is not None,
                )
            )  # fmt: skip
    return pb.Order(
        frontier_ms=order.frontier_ms, reorder_ms=order.reorder_ms, max_ahead_ms=order.max_ahead_ms,
        symbols=order.symbols, live=_flags(live), session=_pack(order.session[:slots]),
        last_sequence=_pack(order.last_sequence[:slots]), newest_time_ms=_pack(order.newest_ms[:slots]),
        last_time_ms=_pack(order.last_ms[:slots]), waiting=waiting,
    )  # fmt: skip


def _encode_changes(changes: RollingChanges, slots: int) -> pb.Changes:
    return pb.Changes(
        reference_age_ms=changes.reference_age_ms.tolist(),
        previous_floor_bps=_pack(changes.previous_floor[:slots]),
        previous_negated_floor_bps=_pack(changes.previous_negated_floor[:slots]),
        last_price_scaled=_pack(changes.last_price[:slots]),
        suppressed=_flags(changes.suppressed[:slots]), baseline=_flags(changes.baseline[:slots]),
        splits=[
            pb.SlotSplit(slot=slot, effective_from_ms=at_ms, new_shares=new, old_shares=old)
            for slot, splits in changes.splits.items()
            for at_ms, (new, old) in splits.items()
        ],
    )  # fmt: skip


def _encode_history(history: History, slots: int) -> pb.History:
    recent = history.recent_block()
    block, next_ms = history.places(slots)
    return pb.History(
        first_block=history.first_block, block_min_time_ms=_pack(history.block_min_ms),
        block_max_time_ms=_pack(history.block_max_ms), block_members=history.block_members.tobytes(),
        member_bytes=history.block_members.shape[1], recent_slot=recent.slots().astype("<u4").tobytes(),
        recent_time_ms=_pack(recent.times_ms()), recent_price_scaled=_pack(recent.prices),
        reference_time_ms=_pack(history.reference_ms[:slots]),
        reference_price_scaled=_pack(history.reference_price[:slots]),
        next_block=_pack(block), next_time_ms=_pack(next_ms),
    )  # fmt: skip


def decode_base(base: pb.Base, memory: RollingMemory) -> None:
    """Fill an empty memory. Raises ValueError when a column has another length than the symbols ask for."""
    memory.frame_count, memory.lease, memory.control_number = base.frame_count, base.lease, base.control_number
    memory.frame_number = base.frame_number
    numbering = memory.numbering
    numbering.epoch, numbering.audit, numbering.shards = base.epoch, base.audit_number, dict(base.shard_number)
    routes = {route.symbol: Route(route.shards, route.version, route.previous_shards) for route in base.routes}
    memory.routes.of.update(routes)
    counts = memory.order.account
    counts.rejected, counts.duplicate, counts.late = base.rejected, base.duplicate, base.late
    _decode_order(base.order, memory.order)
    _decode_changes(base.changes, memory.changes, memory.order)
    _decode_history(base.history, memory.changes.history, len(memory.order.symbols))


def _decode_order(saved: pb.Order, order: FeedOrder) -> None:
    order.frontier_ms, order.reorder_ms, order.max_ahead_ms = saved.frontier_ms, saved.reorder_ms, saved.max_ahead_ms
    order.symbols = list(saved.symbols)
    slots = len(order.symbols)
    live = _unpack(saved.live, "<u1").tolist()
    order.slot_of = {name: slot for slot, name in enumerate(order.symbols) if live[slot]}
    order.session = _column(saved.session, slots, 0)
    order.last_sequence = _column(saved.last_sequence, slots, 0)
    order.newest_ms = _column(saved.newest_time_ms, slots, 0)
    order.last_ms = _column(saved.last_time_ms, slots, NO_TIME)
    order.irregular = grown(np.zeros(0, np.int64), slots, 0)
    for one in saved.waiting:
        held = [_unpack(c).tolist() for c in (one.held_time_ms, one.held_price_scaled, one.held_sequence)]
        waiting = Waiting(list(zip(*held, strict=True)), _read_runs(one.void_runs))
        waiting.gaps = _read_runs(one.gap_runs) if one.has_gaps else None
        order.waiting[one.slot] = waiting
        order.irregular[one.slot] = 1 if waiting.held or waiting.void else 0


def _decode_changes(saved: pb.Changes, changes: RollingChanges, order: FeedOrder) -> None:
    slots = len(order.symbols)
    changes.reference_age_ms = np.array(saved.reference_age_ms, np.int64)
    changes.previous_floor = _metrics(saved.previous_floor_bps, slots, UNDEFINED)
    changes.previous_negated_floor = _metrics(saved.previous_negated_floor_bps, slots, UNDEFINED)
    changes.last_ms = order.last_ms.copy()
    changes.last_price = _column(saved.last_price_scaled, slots, 0)
    changes.suppressed = _column(saved.suppressed, slots, 0, "<u1")
    changes.baseline = _column(saved.baseline, slots, 0, "<u1")
    changes.newest_split_ms = grown(np.zeros(0, np.int64), slots, NO_TIME)
    for split in saved.splits:
        changes.splits.setdefault(split.slot, {})[split.effective_from_ms] = (split.new_shares, split.old_shares)
        newest = max(int(changes.newest_split_ms[split.slot]), split.effective_from_ms)
        changes.newest_split_ms[split.slot] = newest


def _decode_history(saved: pb.History, history: History, slots: int) -> None:
    history.first_block = saved.first_block
    history.block_min_ms, history.block_max_ms = _unpack(saved.block_min_time_ms), _unpack(saved.block_max_time_ms)
    blocks = len(history.block_min_ms)
    history.newest_block = saved.first_block + blocks
    members = np.frombuffer(saved.block_members, np.uint8)
    history.block_members = members.reshape(blocks, saved.member_bytes).copy()
    history.restore_cursors(
        _metrics(saved.reference_time_ms, slots, 0), _metrics(saved.reference_price_scaled, slots, 0),
        _metrics(saved.next_block, slots, 0), _metrics(saved.next_time_ms, slots, NEVER),
    )  # fmt: skip
    history.recent_first_ms = grown(np.zeros(0, np.int64), slots, NEVER)
    recent_slot = _unpack(saved.recent_slot, "<u4")
    if len(recent_slot) and int(recent_slot.max()) >= min(slots, 1 << 63 - TIME_BITS):
        raise ValueError("an unsealed tick of a slot that has no symbol")
    history.restore_recent(recent_slot, _unpack(saved.recent_time_ms), _unpack(saved.recent_price_scaled))


def _column(data: bytes, slots: int, fill: int, dtype: str = "<i8") -> Int64s:
    column = _unpack(data, dtype)
    if len(column) != slots:
        raise ValueError(f"a column has {len(column)} values for {slots} symbols")
    return grown(column, slots, fill)


def _metrics(data: bytes, slots: int, fill: int) -> Int64s:
    return _column(data, slots * _W, fill).reshape(-1, _W)
