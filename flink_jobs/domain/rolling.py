"""The rolling core of one bucket: price frames in, metrics of every shard of the bucket out.

What it writes is a function of the entries it has read, however they were cut into frames. Its memory is rebuilt
from the state: a base snapshot, and a journal of the frames since, applied again by the same code.
"""

from __future__ import annotations

import numpy as np

from contracts import frames_pb2 as pb
from contracts.keys import bucket_shard
from contracts.vocabulary import MAX_NAME_CHARACTERS, WINDOWS
from flink_jobs.domain.feed_order import FeedOrder, Ticks
from flink_jobs.domain.history import BLOCK_TICKS, History
from flink_jobs.domain.history_block import MAX_EVENT_TIME_MS
from flink_jobs.domain.rolling_changes import Changes, RollingChanges
from flink_jobs.domain.rolling_frames import PriceFrame, read_price_frame
from flink_jobs.domain.rolling_output import Numbering, RollingOutputs, ShardPart, audit_records, metric_records
from flink_jobs.domain.rolling_snapshot import Journal, RollingMemory
from flink_jobs.domain.routes import Routes
from flink_jobs.domain.state import Output, StateMap
from flink_jobs.domain.tick_account import Reason, Tick


class RollingCore:
    """One bucket's feed order, history and metrics. One frame at a time; not thread-safe."""

    def __init__(
        self, state: StateMap, feed: str, bucket: int, epoch: int, *,
        block_ticks: int = BLOCK_TICKS, entrywise: bool = False,
    ) -> None:  # fmt: skip
        """A core on an empty map begins under `epoch`; on any other it goes on as its writer would have.

        `block_ticks`: size of a sealed block. `entrywise`: take no columnar path (for tests; same results).
        Raises StateVersionError when the state was written by newer code.
        """
        self._feed, self._bucket, self._entrywise = feed, bucket, entrywise
        self._own_shard = bucket_shard(feed, bucket)
        order, changes = FeedOrder(entrywise=entrywise), RollingChanges(History(state, block_ticks=block_ticks))
        self._memory = RollingMemory(Numbering(epoch), order, changes, Routes(feed, bucket))
        self._journal = Journal(state)
        self._emitted: list[Ticks] = []  # of the frame in work, evaluated
        self._waiting: list[Ticks] = []  # emitted, to be evaluated before anything that changes results
        self._changes: list[Changes] = []
        self._emitted_count = 0
        self._parts: dict[str, ShardPart] = {}
        if self._journal.load_base(self._memory):
            sealed = False
            for frame in self._journal.frames_since_base(self._memory.frame_count):
                self._apply(read_price_frame(frame, feed, bucket))
                sealed |= self._housekeep()
            if sealed:
                self._journal.write_base(self._memory)

    @property
    def epoch(self) -> int:
        """The epoch of every number written: the state's, else the one given."""
        return self._memory.numbering.epoch

    @property
    def counts(self) -> pb.Counts:
        """Totals of ticks rejected (the gateway's dead letters included), duplicate and late."""
        return self._memory.order.account.totals()

    def process(self, price_frame: bytes) -> RollingOutputs:
        """Apply one serialized PriceFrame and give what to write.

        Raises PriceFrameError when it is malformed or another bucket's: nothing was applied, the state is as before.
        """
        frame = read_price_frame(price_frame, self._feed, self._bucket)
        if self._memory.frame_count == 0:
            self._journal.write_base(self._memory)
        outputs = self._apply(frame)
        if self._housekeep() or self._journal.is_full(self._memory.frame_count):
            self._journal.write_base(self._memory)
        else:
            self._journal.write_frame(self._memory.frame_count, price_frame)
        return outputs

    # -- one frame
    def _apply(self, frame: PriceFrame) -> RollingOutputs:
        memory = self._memory
        memory.frame_count += 1
        self._parts = {}
        if frame.lease < memory.lease:
            self._fence(frame)
            return self._take_outputs()
        if frame.lease > memory.lease:
            memory.lease, memory.frame_number = frame.lease, 0
        if frame.frame_number == 0 or frame.frame_number > memory.frame_number:
            memory.frame_number = max(memory.frame_number, frame.frame_number)
            memory.order.account.rejected += frame.rejected
            done = 0
            for control in frame.controls:
                self._ticks(frame, done, control.before_row)
                done = control.before_row
                self._control(control)
            self._ticks(frame, done, len(frame))
        self._evaluate()
        return self._take_outputs()

    def _housekeep(self) -> bool:
        """Seal the newest block when it is full and drop what no window reaches; True: it was sealed."""
        order, changes = self._memory.order, self._memory.changes
        if not changes.history.seal_when_full():
            return False
        live = np.zeros(len(changes.last_ms), np.bool_)
        live[list(order.slot_of.values())] = True
        changes.history.drop_older(changes.reach_ms(live, order.frontier_ms))
        return True

    def _fence(self, frame: PriceFrame) -> None:
        """A gateway that is over: nothing of its frame counts; its successor sends these ticks again."""
        columns = (frame.symbol_index, frame.event_time_ms, frame.price_scaled, frame.sequence, frame.session)
        for index, *tick in zip(*(column.tolist() for column in columns), strict=True):
            self._memory.order.account.note(frame.symbols[index], Tick(*tick), Reason.FENCED_LEASE)

    def _ticks(self, frame: PriceFrame, begin: int, end: int) -> None:
        if begin == end:
            return
        step = 1 if self._entrywise else end - begin
        for row in range(begin, end, step):
            self._emit(self._memory.order.ticks(frame, row, row + step))

    def _emit(self, ticks: Ticks) -> None:
        if not len(ticks):
            return
        parts = [ticks.row(at) for at in range(len(ticks))] if self._entrywise else [ticks]
        for part in parts:
            self._waiting.append(part)
            self._emitted_count += len(part)
            if self._entrywise:
                self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate what was emitted, under the settings, splits and routes that hold now."""
        if not self._waiting:
            return
        ticks = Ticks.joined(self._waiting)
        self._waiting = []
        first = self._emitted_count - len(ticks)
        self._changes.append(self._memory.changes.evaluate(ticks))
        self._emitted.append(ticks)
        places = np.arange(first, first + len(ticks))
        elsewhere = self._memory.routes.elsewhere()
        if elsewhere:
            slot_of = self._memory.order.slot_of
            hot = {slot_of[name] for name in elsewhere if name in slot_of}
            for slot in sorted(hot.intersection(ticks.slot.tolist())):
                mine = ticks.slot == slot
                for shard in self._memory.routes.shards(self._memory.order.symbols[slot]):
                    self._part(shard).rows.append(places[mine])
            places = places[~np.isin(ticks.slot, sorted(hot))]
        if len(places):
            self._part(self._own_shard).rows.append(places)

    # -- controls
    def _control(self, control: pb.Control) -> None:
        """One control at its place; a numbered one at or below the last is a repeat."""
        if control.control_number:
            if control.control_number <= self._memory.control_number:
                return
            self._memory.control_number = control.control_number
        match control.WhichOneof("kind"):
            case "heartbeat":
                self._emit(self._memory.order.heartbeat(control.heartbeat.frontier_ms))
                beat = pb.Heartbeat(frontier_ms=self._memory.order.frontier_ms, counts=self.counts)
                self._forward_to_all(pb.Control(heartbeat=beat))
            case "marker":
                marker = pb.Marker(marker_id=control.marker.marker_id, counts=self.counts)
                self._forward_to_all(pb.Control(marker=marker))
            case "flush":
                self._emit(self._memory.order.flush())
                self._forward_to_all(pb.Control(flush=pb.Flush()))
            case "settings":
                self._evaluate()
                self._settings(control.settings)
            case "instrument":
                self._evaluate()
                name = control.instrument.symbol
                slot = self._memory.order.add_symbol(name) if 0 < len(name) <= MAX_NAME_CHARACTERS else None
                if slot is not None:
                    self._memory.changes.add_slot(slot)
            case "split":
                self._evaluate()
                self._split(control)
            case "resume":
                self._evaluate()
                slot = self._memory.order.slot_of.get(control.resume.symbol)
                if slot is not None and self._memory.changes.resume(slot):
                    self._forward(control, self._memory.routes.shards(control.resume.symbol))
            case "routing":
                self._evaluate()
                self._route(control.routing)

    def _settings(self, settings: pb.Settings) -> None:
        order, ages = self._memory.order, self._memory.changes.reference_age_ms
        if settings.HasField("reorder_ms"):
            order.reorder_ms = max(0, min(settings.reorder_ms, MAX_EVENT_TIME_MS))
        if settings.HasField("max_ahead_ms"):
            order.max_ahead_ms = max(0, min(settings.max_ahead_ms, MAX_EVENT_TIME_MS))
        for window, age_ms in settings.reference_age_ms.items():
            if window in WINDOWS:
                ages[WINDOWS.index(window)] = min(age_ms, MAX_EVENT_TIME_MS)

    def _split(self, control: pb.Control) -> None:
        split, changes = control.split, self._memory.changes
        slot = self._memory.order.slot_of.get(split.symbol)
        at_ms = split.effective_from_ms
        if slot is None or not split.new_shares or not split.old_shares or abs(at_ms) > MAX_EVENT_TIME_MS:
            return
        was_suppressed = bool(changes.suppressed[slot])
        if not changes.split(slot, at_ms, split.new_shares, split.old_shares):
            return
        self._forward(control, self._memory.routes.shards(split.symbol))
        if changes.suppressed[slot] and not was_suppressed:
            self._memory.order.account.note(split.symbol, Tick(at_ms, 0, 0, 0), Reason.SUPPRESSED_BY_SPLIT)

    def _route(self, routing: pb.Routing) -> None:
        slot = self._memory.order.slot_of.get(routing.symbol)

        def splits() -> list[pb.Split]:
            known = {} if slot is None else self._memory.changes.splits.get(slot, {})
            return [
                pb.Split(symbol=routing.symbol, effective_from_ms=at_ms, new_shares=new, old_shares=old)
                for at_ms, (new, old) in known.items()
            ]

        newest_ms = 0 if slot is None else max(0, int(self._memory.changes.last_ms[slot]))
        for forward in self._memory.routes.apply(routing, newest_ms, splits):
            self._forward(forward.control, forward.shards)

    # -- shards
    def _part(self, shard: str) -> ShardPart:
        part = self._parts.get(shard)
        if part is None:
            part = self._parts[shard] = ShardPart(shard)
        return part

    def _forward(self, control: pb.Control, shards: list[str]) -> None:
        for shard in shards:
            self._part(shard).controls.append((self._emitted_count, control))

    def _forward_to_all(self, control: pb.Control) -> None:
        self._forward(control, self._memory.routes.all_shards())

    def _take_outputs(self) -> RollingOutputs:
        memory = self._memory
        metrics: list[Output] = []
        if self._parts:
            ticks, changes = Ticks.joined(self._emitted or [_NO_TICKS]), Changes.joined(self._changes)
            for part in self._parts.values():
                if len(part.rows) > 1:
                    part.rows = [np.sort(np.concatenate(part.rows))]
                metrics += metric_records(part, ticks, changes, memory.order.symbols, memory.numbering)
        frontier_ms, audit = memory.order.frontier_ms, memory.order.account.take_audit()
        audits = audit_records(self._feed, self._bucket, audit, frontier_ms, memory.numbering)
        self._emitted, self._changes, self._emitted_count = [], [], 0
        return RollingOutputs([_stamped(output, frontier_ms) for output in metrics], audits)


_NO_TICKS = Ticks(*(np.zeros(0, np.int64) for _ in range(5)))


def _stamped(output: Output, frontier_ms: int) -> Output:
    """A record of controls without a time of their own is stamped with the frontier."""
    return output if output.timestamp_ms else Output(output.key, output.value, frontier_ms)
