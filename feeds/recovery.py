"""How a gateway finds out what prices.v1 holds of its feeds, exactly, whoever wrote there before it.

A new gateway first puts an empty frame under its new lease into every bucket: from there on the rolling job drops what
an older gateway may still write. Then it reads the log from its checkpoint up to those frames, by the rule that the
rolling job follows (a frame of a lower lease than one before it is void). The checkpoint (feeds.checkpoint) keeps
that short: it says what was known at certain offsets, and is written only under the lease that still holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError
from pydantic import BaseModel, ConfigDict, ValidationError

from contracts.frames_pb2 import PriceFrame
from contracts.keys import bucket_shard, partition_of
from feeds.domain.recovered import RecoveredFeed
from ports.message_log import LogError, LogReader, LogRecord, LogWriter

SCAN_BATCH: Final = 2_000
SCAN_POLL_SECONDS: Final = 1.0
MAX_EMPTY_POLLS: Final = 60


class Checkpoint(BaseModel):
    """What the log held of a feed before these offsets of prices.v1 (partition -> offset)."""

    model_config = ConfigDict(frozen=True)

    offsets: dict[int, int]
    lease: int = 0
    frontier_ms: int = 0
    positions: dict[int, dict[str, int]] = {}


class CheckpointError(LogError):
    """A stored checkpoint that does not fit the log; says what to do."""

    def __init__(self, feed: str, problem: str) -> None:
        super().__init__(
            f"feed {feed}: its checkpoint {problem}; was prices.v1 made anew? Then set feeds.checkpoint to NULL"
        )
        self.feed = feed


def read_checkpoint(feed: str, stored: str) -> Checkpoint:
    """Raises CheckpointError."""
    try:
        return Checkpoint.model_validate_json(stored)
    except ValidationError as error:
        raise CheckpointError(feed, f"is not readable ({error.error_count()} faults)") from None


@dataclass(frozen=True, slots=True)
class Opening:
    """A feed just taken."""

    feed: str
    buckets: int
    lease: int
    checkpoint: Checkpoint


@dataclass(slots=True)
class _Scan:
    """One feed while the log is read."""

    opening: Opening
    first_offsets: dict[int, int]
    leases: dict[int, int]
    positions: dict[int, dict[str, int]]
    frontier_ms: int
    lost: bool = False

    def apply(self, record: LogRecord, frame: PriceFrame) -> None:
        if record.offset < self.first_offsets.get(record.partition, 0):
            return
        if frame.lease > self.opening.lease:
            self.lost = True
        if frame.bucket >= self.opening.buckets or frame.lease < self.leases[frame.bucket]:
            return
        self.leases[frame.bucket] = frame.lease
        self.positions[frame.bucket].update(frame.source_position)
        for control in frame.controls:
            if control.HasField("heartbeat"):
                self.frontier_ms = max(self.frontier_ms, control.heartbeat.frontier_ms)


def recover(
    openings: Sequence[Opening], writer: LogWriter, reader: LogReader, topic: str
) -> Mapping[str, RecoveredFeed]:
    """Fence the feeds' buckets, then read what they hold. One pass over the log for all of them.

    A feed of which the log has a higher lease is left out. Raises LogError, TruncatedLogError, CheckpointError.
    """
    partitions = reader.partitions(topic)
    for opening in openings:
        for bucket in range(opening.buckets):
            frame = PriceFrame(feed=opening.feed, bucket=bucket, lease=opening.lease)
            key = bucket_shard(opening.feed, bucket).encode()
            writer.append(topic, key, frame.SerializeToString(), max(1, opening.checkpoint.frontier_ms))
    writer.flush()
    ends = reader.end_offsets(topic)
    scans = {opening.feed: _begin(opening, partitions, ends) for opening in openings}
    first: dict[int, int] = {}
    for scan in scans.values():
        for partition, offset in scan.first_offsets.items():
            first[partition] = min(offset, first.get(partition, offset))
    _read(scans, reader, topic, first, ends)
    kept = {feed: scan for feed, scan in scans.items() if not scan.lost}
    return {feed: RecoveredFeed(scan.positions, scan.frontier_ms) for feed, scan in kept.items()}


def _begin(opening: Opening, partitions: int, ends: Mapping[int, int]) -> _Scan:
    checkpoint = opening.checkpoint
    buckets = range(opening.buckets)
    used = {partition_of(bucket_shard(opening.feed, bucket).encode(), partitions) for bucket in buckets}
    first_offsets = {partition: checkpoint.offsets.get(partition, 0) for partition in used}
    for partition, offset in first_offsets.items():
        if offset > ends[partition]:
            raise CheckpointError(
                opening.feed, f"is at {offset} of partition {partition}, which ends at {ends[partition]}"
            )
    return _Scan(
        opening,
        first_offsets,
        dict.fromkeys(buckets, checkpoint.lease),
        {bucket: dict(checkpoint.positions.get(bucket, {})) for bucket in buckets},
        checkpoint.frontier_ms,
    )


def _read(
    scans: Mapping[str, _Scan], reader: LogReader, topic: str, first: Mapping[int, int], ends: Mapping[int, int]
) -> None:
    left = {partition: ends[partition] for partition, offset in first.items() if offset < ends[partition]}
    reader.assign({(topic, partition): first[partition] for partition in left})
    empty_polls = 0
    while left:
        records = reader.poll(SCAN_BATCH, SCAN_POLL_SECONDS)
        empty_polls = 0 if records else empty_polls + 1
        if empty_polls > MAX_EMPTY_POLLS:
            raise LogError(f"{topic}: nothing came for {MAX_EMPTY_POLLS} polls, partitions {sorted(left)} end later")
        for record in records:
            frame = _frame_of(record.value)
            scan = scans.get(frame.feed)
            if scan is not None:
                scan.apply(record, frame)
            if record.offset + 1 >= left.get(record.partition, record.offset + 2):
                del left[record.partition]
    reader.assign({})


def _frame_of(value: bytes) -> PriceFrame:
    """An empty frame of no feed when it is none (not ours: the rolling job refuses it)."""
    frame = PriceFrame()
    try:
        frame.ParseFromString(value)
    except DecodeError:
        return PriceFrame()
    return frame
