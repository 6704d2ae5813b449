"""What a log says once repeats, gaps and writers that are over are taken out: each rule written down anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import unpack
from typing import NamedTuple

from contracts import frames_pb2 as pb
from ports.message_log import LogRecord


class Row(NamedTuple):
    """A tick in a frame. `price_scaled` 0: refused, only its sequence counts."""

    symbol: str
    event_time_ms: int
    price_scaled: int
    sequence: int
    session: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A tick as the shard log tells it, with the price before it."""

    row: Row
    previous_price_scaled: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """An entry of candidates.v1 that counts, and where its record lies."""

    shard: str
    epoch: int
    number: int
    partition: int
    offset: int
    entry: pb.CandidateEntry


PriceEntry = Row | pb.Control | int  # a number: ticks that the gateway refused without a row


def price_entries(records: Iterable[LogRecord]) -> dict[tuple[str, int], list[PriceEntry]]:
    """Per (feed, bucket): rows, controls, and numbers of ticks that the gateway refused without a row."""
    buckets: dict[tuple[str, int], list[PriceEntry]] = {}
    newest: dict[tuple[str, int], tuple[int, int]] = {}  # lease, frame
    for record in records:
        frame = pb.PriceFrame.FromString(record.value)
        bucket = frame.feed, frame.bucket
        lease, number = newest.get(bucket, (0, 0))
        if frame.lease < lease or (frame.lease == lease and 0 < frame.frame_number <= number):
            continue
        newest[bucket] = frame.lease, frame.frame_number if frame.lease > lease else max(number, frame.frame_number)
        entries = buckets.setdefault(bucket, [])
        if frame.rejected:
            entries.append(frame.rejected)
        entries += _merged(list(_rows(frame)), frame.controls)
    return buckets


def _rows(frame: pb.PriceFrame | pb.MetricFrame) -> Iterator[Row]:
    count = len(frame.symbol_index) // 2
    indexes = unpack(f"<{count}H", frame.symbol_index)
    columns = [
        unpack(f"<{count}q", column)
        for column in (frame.event_time_ms, frame.price_scaled, frame.sequence, frame.session)
    ]
    for index, *values in zip(indexes, *columns, strict=True):
        yield Row(frame.symbols[index], *values)


def _merged(rows: list[Row], controls: Iterable[pb.Control]) -> list[Row | pb.Control]:
    merged: list[Row | pb.Control] = []
    done = 0
    for control in controls:
        merged += rows[done : control.before_row]
        done = control.before_row
        merged.append(control)
    return merged + rows[done:]


def _fresh(known: dict[str, tuple[int, int]], writer: str, epoch: int, first: int, count: int) -> int | None:
    """How many leading entries are known already; None: none counts."""
    last_epoch, last = known.get(writer, (0, 0))
    if epoch < last_epoch:
        return None
    if epoch > last_epoch:
        last = 0
    if first > last + 1 or first + count - 1 <= last:
        return None
    known[writer] = epoch, first + count - 1
    return last + 1 - first


ShardEntry = tuple[int, Row | pb.Control] | pb.Command  # (metrics epoch, what)


def shard_entries(records: Iterable[LogRecord]) -> dict[str, list[ShardEntry]]:
    """Per shard what its matcher must apply, in order."""
    shards: dict[str, list[ShardEntry]] = {}
    known: dict[str, tuple[int, int]] = {}
    for record in records:
        log = pb.ShardLogRecord.FromString(record.value)
        if log.HasField("commands"):
            commands = log.commands
            skip = _fresh(known, "c" + commands.shard, commands.epoch, commands.first_number, len(commands.commands))
            if skip is not None:
                shards.setdefault(commands.shard, []).extend(list(commands.commands)[skip:])
            continue
        frame = log.metrics
        skip = _fresh(known, "m" + frame.shard, frame.epoch, frame.first_number, frame.count)
        if skip is not None:
            merged = _merged(list(_rows(frame)), frame.controls)
            shards.setdefault(frame.shard, []).extend((frame.epoch, entry) for entry in merged[skip:])
    return shards


def candidate_entries(records: Iterable[LogRecord]) -> list[Claimed]:
    """What a reader of candidates.v1 must apply, partition by partition."""
    known: dict[str, tuple[int, int]] = {}
    found = []
    for record in records:
        frame = pb.CandidateFrame.FromString(record.value)
        skip = _fresh(known, frame.shard, frame.epoch, frame.first_number, len(frame.entries))
        if skip is None:
            continue
        for at, entry in enumerate(list(frame.entries)[skip:], skip):
            found.append(
                Claimed(frame.shard, frame.epoch, frame.first_number + at, record.partition, record.offset, entry)
            )
    return found
