"""Scenarios as price-frame entries, frames cut from them anywhere, and frames taken apart again: test-side only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from contracts import frames_pb2 as pb
from contracts.vocabulary import WINDOWS
from flink_jobs.domain.rolling import RollingCore
from flink_jobs.domain.rolling_output import RollingOutputs
from flink_jobs.domain.state import MemoryState
from tests.scenarios.oracle import Oracle, millis

FEED, BUCKET = "f", 0
Entry = tuple[str, int, int, int, int] | pb.Control  # tick: symbol, time, price, sequence, session


def entries_of(lines: Iterable[str]) -> list[Entry]:
    """The entries of a scenario, as a gateway would send them; an invalid price is a row of price 0."""
    entries: list[Entry] = []
    oracle = Oracle()  # only to read price texts
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        op: dict[str, Any] = json.loads(line)
        match op["op"]:
            case "tick":
                state = oracle.symbols.get(op["symbol"])
                price = oracle.valid_price(state, op.get("price")) if state else None
                scaled = int(price * 10**state.decimals) if price is not None else 0
                entries.append((op["symbol"], millis(op["ts"]), scaled, op.get("seq") or 0, op.get("session", 0)))
            case "instrument":
                oracle.apply(op)
                control = pb.Instrument(symbol=op["symbol"], decimals=op["decimals"])
                entries.append(pb.Control(instrument=control))
            case "settings":
                settings = pb.Settings(reference_age_ms=op.get("reference_age_ms", {}))
                if "reorder_ms" in op:
                    settings.reorder_ms = op["reorder_ms"]
                if "max_ahead_ms" in op:
                    settings.max_ahead_ms = op["max_ahead_ms"] or 0
                entries.append(pb.Control(settings=settings))
            case "split":
                split = pb.Split(symbol=op["symbol"], effective_from_ms=millis(op["effective_from"]))
                split.new_shares, split.old_shares = op["new_shares"], op["old_shares"]
                entries.append(pb.Control(split=split))
            case "resume":
                entries.append(pb.Control(resume=pb.Resume(symbol=op["symbol"])))
            case "heartbeat":
                entries.append(pb.Control(heartbeat=pb.Heartbeat(frontier_ms=millis(op["ts"]))))
    entries.append(pb.Control(flush=pb.Flush()))
    return entries


def frame_of(entries: Sequence[Entry], lease: int = 1) -> bytes:
    """One serialized price frame."""
    frame = pb.PriceFrame(feed=FEED, bucket=BUCKET, lease=lease)
    ticks = [entry for entry in entries if isinstance(entry, tuple)]
    frame.symbols.extend(dict.fromkeys(tick[0] for tick in ticks))
    index = {name: at for at, name in enumerate(frame.symbols)}
    frame.symbol_index = np.array([index[tick[0]] for tick in ticks], "<u2").tobytes()
    for column, name in enumerate(("event_time_ms", "price_scaled", "sequence", "session"), start=1):
        setattr(frame, name, np.array([tick[column] for tick in ticks], "<i8").tobytes())
    row = 0
    for entry in entries:
        if isinstance(entry, tuple):
            row += 1
        else:
            frame.controls.add().CopyFrom(entry)
            frame.controls[-1].before_row = row
    return frame.SerializeToString()


def cut(entries: Sequence[Entry], sizes: Iterable[int]) -> Iterator[bytes]:
    """Frames of these sizes, over and over, until the entries are used up."""
    sizes, at = list(sizes), 0
    while True:
        for size in sizes:
            if at >= len(entries):
                return
            yield frame_of(entries[at : at + size])
            at += size


def core_on(state: MemoryState, **options: Any) -> RollingCore:
    return RollingCore(state, FEED, BUCKET, epoch=7, **options)


def shard_entries(outputs: Iterable[RollingOutputs]) -> dict[str, list[tuple[Any, ...]]]:
    """Per shard its entries in order, each with its number: what a reader of the log sees, whatever the frames."""
    shards: dict[str, list[tuple[Any, ...]]] = {}
    for output in outputs:
        for record in output.metrics:
            frame = pb.ShardLogRecord.FromString(record.value).metrics
            assert frame.shard == record.key
            entries = list(metric_entries(frame))
            assert len(entries) == frame.count > 0
            log = shards.setdefault(record.key, [])
            for number, entry in enumerate(entries, start=frame.first_number):
                assert number == len(log) + 1, "numbers are dense"
                log.append((frame.epoch, number, *entry))
    return shards


def metric_entries(frame: pb.MetricFrame) -> Iterator[tuple[Any, ...]]:
    """("tick", symbol, time, price, sequence, session, previous, previous time, changes) and ("control", bytes)."""

    def column(name: str, dtype: str = "<i8") -> list[int]:
        return np.frombuffer(getattr(frame, name), dtype).tolist()  # type: ignore[no-any-return]

    names = ("event_time_ms", "price_scaled", "sequence", "session", "previous_price_scaled", "previous_event_time_ms")
    rows = list(zip(column("symbol_index", "<u2"), *map(column, names), strict=True))
    floors = ("previous_floor_bps", "previous_negated_floor_bps", "current_floor_bps", "current_negated_floor_bps")
    change_columns = map(column, (*floors, "reference_time_ms", "reference_price_scaled"))
    change_row, window = column("change_row", "<u4"), column("change_window", "<u1")
    assert list(zip(change_row, window, strict=True)) == sorted(set(zip(change_row, window, strict=True)))
    changes: dict[int, list[tuple[Any, ...]]] = {}
    for row, w, *values in zip(change_row, window, *change_columns, strict=True):
        changes.setdefault(row, []).append((WINDOWS[w], *values))
    controls = list(frame.controls)
    for row in range(len(rows) + 1):
        while controls and controls[0].before_row == row:
            control = controls.pop(0)
            control.before_row = 0
            yield ("control", control.SerializeToString())
        if row < len(rows):
            symbol, *values = rows[row]
            yield ("tick", frame.symbols[symbol], *values, tuple(changes.get(row, ())))
    assert not controls


def audit_entries(outputs: Iterable[RollingOutputs]) -> list[tuple[Any, ...]]:
    """The audit in order, with its numbers."""
    audit: list[tuple[Any, ...]] = []
    for output in outputs:
        for record in output.audit:
            frame = pb.AuditFrame.FromString(record.value)
            for number, entry in enumerate(frame.entries, start=frame.first_number):
                assert number == len(audit) + 1
                audit.append((frame.epoch, number, entry.SerializeToString()))
    return audit
