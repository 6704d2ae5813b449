"""What one polled batch of candidate frames asks for: pure, so that neither a crash nor a batch's cut can change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from google.protobuf.message import DecodeError

from contracts.frames_pb2 import (
    Candidate,
    CandidateEntry,
    CandidateFrame,
    Counts,
    Direction,
    RebuildMark,
    Routing,
    RoutingMark,
)
from contracts.numbering import LastNumber, Reading
from contracts.vocabulary import MAX_NAME_CHARACTERS, MAX_SCALED_PRICE, WINDOWS

MAX_INTEGER: Final = (1 << 63) - 1  # Postgres bigint
MAX_DIFFERENCES: Final = 1_000  # of one mark; a matcher names fewer
MARKED_PHASES: Final = frozenset({Routing.OPEN, Routing.COPY, Routing.END})
FIRED: Final = frozenset({Direction.UP, Direction.DOWN, Direction.ABOVE, Direction.BELOW})


class CorruptFrameError(ValueError):
    """A record that is no candidate frame; `reason` is one sentence without the record's bytes."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ReceivedFrame:
    """A decoded record and where it was read (`topic[partition]@offset`)."""

    source: str
    frame: CandidateFrame


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """How far a shard of candidates.v1 is finalized. `gap` names numbers that are missing, None when none are."""

    shard: str
    epoch: int = 0
    number: int = 0
    position: int = 0
    frontier_ms: int = 0
    metrics_epoch: int = 0
    metrics_number: int = 0
    marker_id: int = 0
    rejected: int = 0
    duplicate: int = 0
    late: int = 0
    gap: str | None = None


@dataclass(frozen=True, slots=True)
class Activated:
    """The matcher's word that it holds a rule: `position` of `epoch` in its shard's log."""

    shard: str
    alert_id: int
    version: int
    active_from_event_time_ms: int
    epoch: int
    position: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The matcher's word that a rule was crossed; Postgres decides whether it is so."""

    shard: str
    epoch: int
    position: int
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class RoutingMarked:
    """The shard has come to a place of a symbol's routing, at `position` of `epoch`."""

    shard: str
    epoch: int
    position: int
    mark: RoutingMark


@dataclass(frozen=True, slots=True)
class RebuildMarked:
    """The shard has applied one command of a rebuild."""

    shard: str
    mark: RebuildMark


@dataclass(slots=True)
class BatchPlan:
    """Everything one transaction writes. `progress` holds the shards that moved or whose gap changed.

    `newest_activations`: the last of each alert, version and shard, where `activations` has the first: a moving alert
    is acknowledged by the life of its matcher that its COPY mark is of.
    """

    activations: list[Activated] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    progress: list[ShardProgress] = field(default_factory=list)
    entries_applied: int = 0
    entries_known: int = 0
    frames_in_gap: int = 0
    routing_marks: list[RoutingMarked] = field(default_factory=list)
    rebuild_marks: list[RebuildMarked] = field(default_factory=list)
    newest_activations: list[Activated] = field(default_factory=list)


def decode_frame(key: bytes, value: bytes) -> CandidateFrame:
    """The frame of a record whose every number fits its column. Raises CorruptFrameError."""
    try:
        frame: CandidateFrame = CandidateFrame.FromString(value)
    except DecodeError:
        raise CorruptFrameError("the record is no CandidateFrame") from None
    if frame.shard.encode() != key or not key:
        raise CorruptFrameError("the frame's shard is not the record's key")
    if not 0 < frame.epoch <= MAX_INTEGER or not 0 < frame.first_number <= MAX_INTEGER - len(frame.entries):
        raise CorruptFrameError(f"epoch {frame.epoch} or number {frame.first_number} out of range")
    for index, entry in enumerate(frame.entries):
        wrong = _wrong_with(entry)
        if wrong:
            raise CorruptFrameError(f"entry {index}: {wrong}")
    return frame


def _wrong_with(entry: CandidateEntry) -> str | None:
    """What keeps an entry from being stored. An unknown kind is a newer writer's: it takes its number, nothing else."""
    if entry.position > MAX_INTEGER:
        return "position out of range"
    kind = entry.WhichOneof("kind")
    if kind == "candidate":
        return _wrong_with_candidate(entry.candidate)
    numbers: tuple[int, ...] = ()
    if kind == "activation":
        numbers = entry.activation.alert_id, entry.activation.version
    elif kind == "frontier":
        numbers = entry.frontier.metrics_epoch, entry.frontier.metrics_number, *_totals(entry.frontier.counts)
    elif kind == "marker":
        numbers = entry.marker.marker_id, *_totals(entry.marker.counts)
    elif kind == "routing":
        if not _is_name(entry.routing.symbol) or entry.routing.phase not in MARKED_PHASES:
            return "routing: symbol or phase is unknown"
        numbers = (entry.routing.version,)
    elif kind == "rebuild":
        numbers = _rebuild_numbers(entry.rebuild)
    return f"{kind}: a number is out of range" if numbers and max(numbers) > MAX_INTEGER else None


def _is_name(symbol: str) -> bool:
    return 0 < len(symbol) <= MAX_NAME_CHARACTERS and "\0" not in symbol


def _rebuild_numbers(mark: RebuildMark) -> tuple[int, ...]:
    if len(mark.differences) > MAX_DIFFERENCES:
        return (MAX_INTEGER + 1,)
    named = (number for d in mark.differences for number in (d.alert_id, d.version, d.found_version))
    return mark.rebuild_id, mark.known, mark.missing, mark.other_version, mark.surplus, *named


def _totals(counts: Counts) -> tuple[int, int, int]:
    return counts.rejected, counts.duplicate, counts.late


def _wrong_with_candidate(candidate: Candidate) -> str | None:
    if candidate.alert_id > MAX_INTEGER or candidate.version > MAX_INTEGER:
        return "candidate: a number is out of range"
    if candidate.fired not in FIRED:
        return f"candidate: fired direction {candidate.fired} is unknown"
    if candidate.window >= len(WINDOWS):
        return f"candidate: window {candidate.window} is unknown"
    if not 0 < candidate.price_scaled < MAX_SCALED_PRICE:
        return "candidate: price out of range"
    return None


def plan_batch(frames: Iterable[ReceivedFrame], stored: Mapping[str, ShardProgress]) -> BatchPlan:
    """Plan frames in the order they were read, from each shard's stored progress (missing: a new shard).

    Of several claims, or activations, for one alert and version only the one of the earliest position in its shard is
    kept: entries are numbered in order of position, so it is the first that the reader's rule lets through. While an
    alert moves, its old and its new shard both speak of it: each is heard.
    """
    plan = BatchPlan()
    moved: dict[str, ShardProgress] = {}
    activated: dict[tuple[str, int, int], Activated] = {}
    claimed: set[tuple[str, int, int]] = set()
    for received in frames:
        frame = received.frame
        shard = frame.shard
        before = moved.get(shard) or stored.get(shard) or ShardProgress(shard)
        judgement = LastNumber(before.epoch, before.number).judge(frame.epoch, frame.first_number, len(frame.entries))
        if judgement.reading is Reading.GAP:
            plan.frames_in_gap += 1
            if before.gap is None:
                moved[shard] = replace(before, gap=_describe_gap(before, frame, received.source))
            continue
        if not judgement.applies:
            plan.entries_known += len(frame.entries)
            continue
        fresh = frame.entries[judgement.skip :]
        plan.entries_known += judgement.skip
        plan.entries_applied += len(fresh)
        after = replace(before, epoch=judgement.last.epoch, number=judgement.last.number, gap=None)
        for entry in fresh:
            after = _apply(entry, after, plan, activated, claimed)
        moved[shard] = replace(after, position=fresh[-1].position)
    plan.newest_activations = list(activated.values())
    plan.progress = [after for shard, after in moved.items() if after != stored.get(shard)]
    return plan


def _apply(
    entry: CandidateEntry,
    progress: ShardProgress,
    plan: BatchPlan,
    activated: dict[tuple[str, int, int], Activated],
    claimed: set[tuple[str, int, int]],
) -> ShardProgress:
    kind = entry.WhichOneof("kind")
    if kind == "candidate":
        candidate = entry.candidate
        key = progress.shard, candidate.alert_id, candidate.version
        if key not in claimed:
            claimed.add(key)
            plan.claims.append(Claim(progress.shard, progress.epoch, entry.position, candidate))
    elif kind == "activation":
        activation = entry.activation
        key = progress.shard, activation.alert_id, activation.version
        said = Activated(
            progress.shard,
            activation.alert_id,
            activation.version,
            activation.active_from_event_time_ms,
            progress.epoch,
            entry.position,
        )
        if key not in activated:
            plan.activations.append(said)
        activated[key] = said
    elif kind == "frontier":
        frontier = entry.frontier
        progress = replace(
            progress,
            frontier_ms=max(progress.frontier_ms, frontier.frontier_ms),
            metrics_epoch=frontier.metrics_epoch,
            metrics_number=frontier.metrics_number,
        )
        if frontier.HasField("counts"):
            progress = _counted(progress, frontier.counts)
    elif kind == "marker":
        progress = replace(progress, marker_id=max(progress.marker_id, entry.marker.marker_id))
        if entry.marker.HasField("counts"):
            progress = _counted(progress, entry.marker.counts)
    elif kind == "routing":
        plan.routing_marks.append(RoutingMarked(progress.shard, progress.epoch, entry.position, entry.routing))
    elif kind == "rebuild":
        plan.rebuild_marks.append(RebuildMarked(progress.shard, entry.rebuild))
    return progress


def _counted(progress: ShardProgress, counts: Counts) -> ShardProgress:
    """The bucket's totals so far, as the rolling job last told them."""
    return replace(progress, rejected=counts.rejected, duplicate=counts.duplicate, late=counts.late)


def _describe_gap(progress: ShardProgress, frame: CandidateFrame, source: str) -> str:
    if frame.epoch > progress.epoch:
        return f"epoch {frame.epoch} begins at number {frame.first_number} instead of 1 ({source})"
    return f"epoch {frame.epoch}: number {progress.number + 1} is missing, {frame.first_number} came ({source})"
