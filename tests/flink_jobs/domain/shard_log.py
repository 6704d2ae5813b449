"""A shard's log as plain entries, cut into frames in any way, for the matcher's tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from contracts import frames_pb2 as pb
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.state import MemoryState, Output

SHARD = "feed/0~test"
DIRECTIONS = {"UP": pb.UP, "DOWN": pb.DOWN, "EITHER": pb.EITHER, "ABOVE": pb.ABOVE, "BELOW": pb.BELOW}
FAR_MS = 1 << 50


@dataclass(frozen=True)
class Rule:
    alert_id: int
    symbol: str
    direction: str
    threshold: int
    window: int | None = 1  # None: a price rule
    version: int = 1
    created_at_ms: int = 1
    expires_at_ms: int = FAR_MS

    def message(self) -> pb.Rule:
        return pb.Rule(
            alert_id=self.alert_id,
            version=self.version,
            symbol=self.symbol,
            kind=pb.PRICE if self.window is None else pb.CHANGE,
            window=self.window or 0,
            direction=DIRECTIONS[self.direction],
            threshold=self.threshold,
            created_at_ms=self.created_at_ms,
            expires_at_ms=self.expires_at_ms,
        )


@dataclass(frozen=True)
class Create:
    rule: Rule


@dataclass(frozen=True)
class Remove:
    rule: Rule


@dataclass(frozen=True)
class Change:
    """Twice the change in bps, so that halves tell floors of both signs apart."""

    window: int
    previous_half_bps: int
    current_half_bps: int


@dataclass(frozen=True)
class Tick:
    symbol: str
    time_ms: int
    price: int = 100
    previous_price: int = 0
    previous_time_ms: int = 0
    changes: tuple[Change, ...] = ()
    sequence: int = 7
    session: int = 3


@dataclass(frozen=True)
class Split:
    symbol: str
    effective_from_ms: int
    new_shares: int
    old_shares: int


@dataclass(frozen=True)
class Heartbeat:
    frontier_ms: int


@dataclass(frozen=True)
class Marker:
    marker_id: int


@dataclass(frozen=True)
class Reborn:
    """No entry: the rolling job has lost its state and begins a new epoch, at the log's first metric or behind so many
    ticks of a symbol."""

    skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Routed:
    """A place of a symbol's routing."""

    symbol: str
    version: int
    phase: str
    newest_ms: int = 0

    def message(self) -> pb.Routing:
        return pb.Routing(
            symbol=self.symbol, version=self.version, phase=pb.Routing.Phase.Value(self.phase), shards=2,
            previous_shards=1, newest_event_time_ms=self.newest_ms,
        )  # fmt: skip


@dataclass(frozen=True)
class Begin:
    rebuild_id: int
    symbol: str = ""
    repair: bool = True


@dataclass(frozen=True)
class Assert:
    rebuild_id: int
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class End:
    rebuild_id: int


Command = Create | Remove | Begin | Assert | End
COMMANDS = (Create, Remove, Begin, Assert, End)
Metric = Tick | Split | Heartbeat | Marker | Routed
Entry = Command | Metric | Reborn


def moved(symbol: str, time_ms: int, previous_bps: int, current_bps: int, window: int = 1) -> Tick:
    """A tick whose change in one window went from one whole number of bps to another."""
    return Tick(symbol, time_ms, changes=(Change(window, 2 * previous_bps, 2 * current_bps),))


def priced(symbol: str, time_ms: int, previous: int, price: int, previous_time_ms: int = 1) -> Tick:
    """A tick whose price moved."""
    return Tick(symbol, time_ms, price, previous, previous_time_ms)


def command_record(entries: Sequence[Command], first: int, epoch: int = 1) -> bytes:
    frame = pb.CommandFrame(shard=SHARD, epoch=epoch, first_number=first)
    for entry in entries:
        match entry:
            case Create(rule):
                frame.commands.add(create=pb.CreateRule(rule=rule.message()))
            case Remove(rule):
                frame.commands.add(remove=pb.RemoveRule(rule=rule.message()))
            case Begin(rebuild_id, symbol, repair):
                frame.commands.add(begin_rebuild=pb.BeginRebuild(rebuild_id=rebuild_id, symbol=symbol, repair=repair))
            case Assert(rebuild_id, rules):
                page = pb.AssertRules(rebuild_id=rebuild_id, rules=[rule.message() for rule in rules])
                frame.commands.add(assert_rules=page)
            case End(rebuild_id):
                frame.commands.add(end_rebuild=pb.EndRebuild(rebuild_id=rebuild_id))
    return pb.ShardLogRecord(commands=frame).SerializeToString()


def metric_record(entries: Sequence[Metric], first: int, epoch: int = 1) -> bytes:
    return pb.ShardLogRecord(metrics=metric_frame(entries, first, epoch)).SerializeToString()


def metric_frame(entries: Sequence[Metric], first: int, epoch: int = 1) -> pb.MetricFrame:
    ticks = [entry for entry in entries if isinstance(entry, Tick)]
    symbols = sorted({tick.symbol for tick in ticks})
    changes = [(row, change) for row, tick in enumerate(ticks) for change in tick.changes]
    frame = pb.MetricFrame(shard=SHARD, epoch=epoch, first_number=first, count=len(entries), symbols=symbols)
    frame.symbol_index = np.array([symbols.index(tick.symbol) for tick in ticks], "<u2").tobytes()
    for name, values in {
        "event_time_ms": [tick.time_ms for tick in ticks],
        "price_scaled": [tick.price for tick in ticks],
        "sequence": [tick.sequence for tick in ticks],
        "session": [tick.session for tick in ticks],
        "previous_price_scaled": [tick.previous_price for tick in ticks],
        "previous_event_time_ms": [tick.previous_time_ms for tick in ticks],
        "previous_floor_bps": [change.previous_half_bps // 2 for _, change in changes],
        "previous_negated_floor_bps": [-change.previous_half_bps // 2 for _, change in changes],
        "current_floor_bps": [change.current_half_bps // 2 for _, change in changes],
        "current_negated_floor_bps": [-change.current_half_bps // 2 for _, change in changes],
        "reference_time_ms": [ticks[row].time_ms - 60 for row, _ in changes],
        "reference_price_scaled": [ticks[row].price + 5 for row, _ in changes],
    }.items():
        setattr(frame, name, np.array(values, "<i8").tobytes())
    frame.change_row = np.array([row for row, _ in changes], "<u4").tobytes()
    frame.change_window = np.array([change.window for _, change in changes], "u1").tobytes()
    row = 0
    for entry in entries:
        if isinstance(entry, Tick):
            row += 1
            continue
        control = frame.controls.add(before_row=row)
        if isinstance(entry, Heartbeat):
            control.heartbeat.frontier_ms = entry.frontier_ms
            control.heartbeat.counts.late = 4
        elif isinstance(entry, Marker):
            control.marker.marker_id = entry.marker_id
        elif isinstance(entry, Routed):
            control.routing.CopyFrom(entry.message())
        else:
            control.split.symbol, control.split.effective_from_ms = entry.symbol, entry.effective_from_ms
            control.split.new_shares, control.split.old_shares = entry.new_shares, entry.old_shares
    return frame


def is_command(entry: Entry) -> bool:
    return isinstance(entry, COMMANDS)


def records_of(log: Sequence[Entry], cuts: Iterable[int] = ()) -> list[bytes]:
    """The log as records: cut at `cuts` and wherever the writer changes."""
    cut_at = set(cuts)
    records: list[bytes] = []
    numbers = {True: 1, False: 1}
    start, epoch = 0, 1
    for end in range(1, len(log) + 1):
        if isinstance(log[start], Reborn):
            epoch, numbers[False], start = epoch + 1, 1, end
        elif (
            end == len(log)
            or end in cut_at
            or type(log[end]) is Reborn
            or is_command(log[end]) != is_command(log[start])
        ):
            part, commands = log[start:end], is_command(log[start])
            if commands:
                records.append(command_record([e for e in part if isinstance(e, COMMANDS)], numbers[True]))
            else:
                records.append(
                    metric_record([e for e in part if not isinstance(e, (*COMMANDS, Reborn))], numbers[False], epoch)
                )
            numbers[commands] += len(part)
            start = end
    return records


@dataclass
class Shard:
    """A core with its log's writers: feed it entries, read claims."""

    state: MemoryState = field(default_factory=MemoryState)
    delta_rows: int = 1_000
    numbers: dict[bool, int] = field(default_factory=lambda: {True: 1, False: 1})
    epoch: int = 1

    def __post_init__(self) -> None:
        self.core = MatcherCore(self.state, SHARD, 1, self.delta_rows)

    def feed(self, *log: Entry) -> list[pb.CandidateEntry]:
        """Each entry as a record of its own."""
        entries: list[pb.CandidateEntry] = []
        for entry in log:
            if isinstance(entry, Reborn):
                self.epoch, self.numbers[False] = self.epoch + 1, 1
                continue
            commands = is_command(entry)
            number = self.numbers[commands]
            self.numbers[commands] += 1
            if isinstance(entry, COMMANDS):
                record = command_record([entry], number)
            else:
                record = metric_record([entry], number, self.epoch)
            entries += entries_of(self.core.process(record))
        return entries

    def restart(self) -> None:
        """A new core from what the state holds."""
        self.state = self.state.copy()
        self.core = MatcherCore(self.state, SHARD, 99, self.delta_rows)


def entries_of(outputs: Iterable[Output]) -> list[pb.CandidateEntry]:
    entries: list[pb.CandidateEntry] = []
    for output in outputs:
        entries += pb.CandidateFrame.FromString(output.value).entries
    return entries


def fired(entries: Iterable[pb.CandidateEntry]) -> list[int]:
    """Alert ids of the candidates, in order."""
    return [entry.candidate.alert_id for entry in entries if entry.HasField("candidate")]
