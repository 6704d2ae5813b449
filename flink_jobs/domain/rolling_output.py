"""What the rolling core writes: metric frames per shard and audit frames, every entry under a dense number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from contracts import frames_pb2 as pb
from contracts.keys import bucket_shard
from flink_jobs.domain.feed_order import Ticks
from flink_jobs.domain.rolling_changes import Changes
from flink_jobs.domain.state import Output

MAX_ROWS_PER_FRAME: Final = 2_048  # with every window changed some 750 kB, below Kafka's 1 MB
MAX_AUDIT_PER_FRAME: Final = 8_192


@dataclass(frozen=True, slots=True)
class RollingOutputs:
    """Records of one price frame: shard-log records in the order to write, and audit records (usually none)."""

    metrics: list[Output]
    audit: list[Output]


@dataclass(slots=True)
class ShardPart:
    """What of one frame goes to one shard."""

    shard: str
    rows: list[NDArray[np.intp]] = field(default_factory=list)  # rising places among the frame's emitted ticks
    controls: list[tuple[int, pb.Control]] = field(default_factory=list)  # (emitted ticks before it, control)


@dataclass(slots=True)
class Numbering:
    """Dense numbers of everything written, per shard and for the audit."""

    epoch: int
    shards: dict[str, int] = field(default_factory=dict)  # last number given
    audit: int = 0


def _little(column: NDArray[np.generic], dtype: str) -> bytes:
    return column.astype(dtype, copy=False).tobytes()


def metric_records(
    part: ShardPart, ticks: Ticks, changes: Changes, symbols: Sequence[str], numbering: Numbering
) -> list[Output]:
    """Records of one shard. Raises nothing; a frame with many ticks becomes several records."""
    rows = np.concatenate(part.rows) if part.rows else np.zeros(0, np.intp)
    outputs, shard = [], part.shard
    controls = [(int(np.searchsorted(rows, place)), control) for place, control in part.controls]
    for begin in range(0, max(len(rows), 1), MAX_ROWS_PER_FRAME):
        end = min(begin + MAX_ROWS_PER_FRAME, len(rows))
        inside = [(k - begin, c) for k, c in controls if begin <= k < end or k == end == len(rows)]
        frame, newest_ms = _metric_frame(rows[begin:end], ticks, changes, symbols)
        for before_row, control in inside:
            frame.controls.add().CopyFrom(control)
            frame.controls[-1].before_row = before_row
            newest_ms = max(newest_ms, control.heartbeat.frontier_ms)
        frame.shard, frame.epoch = shard, numbering.epoch
        frame.count = end - begin + len(inside)
        frame.first_number = numbering.shards.get(shard, 0) + 1
        numbering.shards[shard] = frame.first_number + frame.count - 1
        outputs.append(Output(shard, pb.ShardLogRecord(metrics=frame).SerializeToString(), newest_ms))
    return outputs


def _metric_frame(
    rows: NDArray[np.intp], ticks: Ticks, changes: Changes, symbols: Sequence[str]
) -> tuple[pb.MetricFrame, int]:
    """Columns of a frame with these ticks, and their newest time (0: no ticks)."""
    if not len(rows):
        return pb.MetricFrame(), 0
    everything = len(rows) == len(ticks)
    slot = ticks.slot[rows]
    place_of = np.zeros(len(symbols), np.intp)
    place_of[slot] = 1
    slots = place_of.nonzero()[0]
    place_of[slots] = np.arange(len(slots))
    index = place_of[slot]
    if everything:
        chosen, change_row = np.ones(len(changes.row), np.bool_), changes.row
    else:
        place = np.full(len(ticks), -1, np.intp)
        place[rows] = np.arange(len(rows))
        mine = place[changes.row] >= 0
        chosen, change_row = mine, place[changes.row[mine]]
    time = ticks.time_ms[rows]
    frame = pb.MetricFrame(
        symbols=[symbols[slot] for slot in slots.tolist()],
        symbol_index=_little(index, "<u2"),
        event_time_ms=_little(time, "<i8"),
        price_scaled=_little(ticks.price_scaled[rows], "<i8"),
        sequence=_little(ticks.sequence[rows], "<i8"),
        session=_little(ticks.session[rows], "<i8"),
        previous_price_scaled=_little(changes.previous_price[rows], "<i8"),
        previous_event_time_ms=_little(changes.previous_ms[rows], "<i8"),
        change_row=_little(change_row, "<u4"),
        change_window=_little(changes.window[chosen], "<u1"),
        previous_floor_bps=_little(changes.previous_floor[chosen], "<i8"),
        previous_negated_floor_bps=_little(changes.previous_negated_floor[chosen], "<i8"),
        current_floor_bps=_little(changes.current_floor[chosen], "<i8"),
        current_negated_floor_bps=_little(changes.current_negated_floor[chosen], "<i8"),
        reference_time_ms=_little(changes.reference_ms[chosen], "<i8"),
        reference_price_scaled=_little(changes.reference_price[chosen], "<i8"),
    )
    return frame, int(time.max())


def audit_records(
    feed: str, bucket: int, entries: Sequence[pb.AuditEntry], frontier_ms: int, numbering: Numbering
) -> list[Output]:
    """Audit records of the entries, none for none. Stamped with the frontier, since an audited time may be wild."""
    outputs = []
    for begin in range(0, len(entries), MAX_AUDIT_PER_FRAME):
        part = entries[begin : begin + MAX_AUDIT_PER_FRAME]
        frame = pb.AuditFrame(
            feed=feed, bucket=bucket, epoch=numbering.epoch, first_number=numbering.audit + 1, entries=part
        )
        numbering.audit += len(part)
        outputs.append(Output(bucket_shard(feed, bucket), frame.SerializeToString(), frontier_ms))
    return outputs
