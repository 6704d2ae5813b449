"""candidates.v1 into Postgres: one transaction a batch, positions included."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import structlog

from contracts.dead_letter import Reason, dead_letter
from finalizer.domain.batch import BatchPlan, CorruptFrameError, ReceivedFrame, decode_frame, plan_batch
from finalizer.failpoints import Failpoint, survive
from finalizer.ports import BatchOutcome, FinalizerStore, Gap, Moves, PositionsMovedError
from ports.clock import Clock
from ports.message_log import LogReader, LogRecord, LogWriter

MAX_RECORDS_A_POLL: Final = 500
MAX_ENTRIES_A_BATCH: Final = 20_000  # bounds the transaction; a frame with more is a batch of its own
POLL_SECONDS: Final = 0.1  # while nothing comes
GAP_LOOK_MS: Final = 10_000  # between two looks at gaps; another instance may have found or filled one
GAP_LOG_MS: Final = 60_000  # a gap that stands is said again
MAX_GAPS_TOLD: Final = 20  # shards named in the log and in the health file

log = structlog.get_logger()


class Consumer:
    """Service. Several may run: whoever moves a batch's positions first has finalized it, the others read again."""

    def __init__(
        self,
        store: FinalizerStore,
        reader: LogReader,
        writer: LogWriter,
        clock: Clock,
        *,
        candidates: str,
        dead_letters: str,
        fail: Failpoint = survive,
    ) -> None:
        """candidates, dead_letters: topic names in this environment."""
        self._store, self._reader, self._writer, self._clock, self._fail = store, reader, writer, clock, fail
        self._topic, self._dead_letters = candidates, dead_letters
        self._positions: dict[int, int] | None = None  # None: to be read from the store
        self._waiting: deque[LogRecord] = deque()
        self._gaps: tuple[int, Sequence[Gap]] = 0, ()
        self._next_gap_look_ms = 0
        self._next_gap_log_ms = 0
        self._figures = dict.fromkeys(
            (
                "batches",
                "entries_applied",
                "entries_known",
                "frames_in_gap",
                "activated",
                "triggered",
                "refused",
                "corrupt_records",
                "batches_lost_to_another",
            ),
            0,
        )

    def step(self) -> bool:
        if self._positions is None:
            self._seek()
        if self._clock.monotonic_ms() >= self._next_gap_look_ms:
            self._look_at_gaps()
        if not self._waiting:
            self._waiting.extend(self._reader.poll(MAX_RECORDS_A_POLL, POLL_SECONDS))
        if not self._waiting:
            return False
        positions, self._positions = self._positions, None  # whatever raises below, the next step reads them again
        assert positions is not None
        moves, frames = self._take_batch(positions)
        try:
            with self._store.advance(moves) as work:
                plan = plan_batch(frames, work.progress({received.frame.shard for received in frames}))
                outcome = work.apply(plan, self._clock.wall_ms())
                self._fail("before commit")
        except PositionsMovedError:
            self._figures["batches_lost_to_another"] += 1
            return True
        self._fail("after commit")
        self._positions = positions | {partition: after for partition, (_, after) in moves.offsets.items()}
        self._count(plan, outcome)
        return True

    def _seek(self) -> None:
        self._waiting.clear()
        positions = self._store.positions(self._topic, self._reader.partitions(self._topic))
        self._reader.assign({(self._topic, partition): offset for partition, offset in positions.items()})
        self._positions = positions

    def _take_batch(self, positions: dict[int, int]) -> tuple[Moves, list[ReceivedFrame]]:
        frames: list[ReceivedFrame] = []
        offsets: dict[int, tuple[int, int]] = {}
        refused: list[tuple[LogRecord, str]] = []
        entries = 0
        while self._waiting and (not frames or entries < MAX_ENTRIES_A_BATCH):
            record = self._waiting.popleft()
            read_from, _ = offsets.get(record.partition, (positions[record.partition], 0))
            offsets[record.partition] = read_from, record.offset + 1
            try:
                frame = decode_frame(record.key, record.value)
            except CorruptFrameError as error:
                refused.append((record, error.reason))
                continue
            entries += len(frame.entries)
            frames.append(ReceivedFrame(f"{record.topic}[{record.partition}]@{record.offset}", frame))
        self._bury(refused)
        return Moves(self._topic, offsets), frames

    def _bury(self, refused: Sequence[tuple[LogRecord, str]]) -> None:
        """Dead letters before the positions move: after a crash the same one may be written twice, never not at all."""
        for record, reason in refused:
            letter = dead_letter(
                Reason.BAD_FRAME,
                reason,
                feed=record.key.partition(b"/")[0].decode(errors="replace"),
                symbol=None,
                source=f"{record.topic}[{record.partition}]",
                position=record.offset,
                raw=record.value,
            )
            self._writer.append(
                self._dead_letters, record.key, letter.model_dump_json().encode(), max(record.timestamp_ms, 0)
            )
            self._figures["corrupt_records"] += 1
            log.error(
                "corrupt record", topic=record.topic, partition=record.partition, offset=record.offset, why=reason
            )
        if refused:
            self._writer.flush()

    def _count(self, plan: BatchPlan, outcome: BatchOutcome) -> None:
        self._figures["batches"] += 1
        self._figures["entries_applied"] += plan.entries_applied
        self._figures["entries_known"] += plan.entries_known
        self._figures["frames_in_gap"] += plan.frames_in_gap
        self._figures["activated"] += outcome.activated
        self._figures["triggered"] += len(outcome.triggered)
        self._figures["refused"] += len(outcome.refused)
        known = {gap.shard for gap in self._gaps[1]}
        if any(progress.gap is not None or progress.shard in known for progress in plan.progress):
            self._next_gap_look_ms = 0
        if outcome.refused:
            log.warning("claims refused, rules installed again", alert_ids=list(outcome.refused)[:20])

    def _look_at_gaps(self) -> None:
        """What the database says, so that a restart and another instance's gap are no end of the alarm."""
        now_ms = self._clock.monotonic_ms()
        self._next_gap_look_ms = now_ms + GAP_LOOK_MS
        before = {gap.shard for gap in self._gaps[1]}
        shards, gaps = self._gaps = self._store.gaps(MAX_GAPS_TOLD)
        filled = sorted(before - {gap.shard for gap in gaps})
        if filled and shards <= MAX_GAPS_TOLD:  # else some may only be beyond the list
            log.info("gaps filled", shards=filled, still=shards)
        fresh = [gap for gap in gaps if gap.shard not in before]
        if now_ms >= self._next_gap_log_ms:
            fresh, self._next_gap_log_ms = list(gaps), now_ms + GAP_LOG_MS
        for gap in fresh:
            log.error(
                "gap: restart the shard's writer from a checkpoint before it, else under a new epoch",
                shard=gap.shard, gap=gap.what, since_ms=gap.since_ms, shards_in_a_gap=shards,
            )  # fmt: skip

    def detail(self) -> dict[str, Any]:
        """`gaps`: how many shards stand still because of one, and the longest standing (`since_ms`: wall clock)."""
        shards, gaps = self._gaps
        return {
            **self._figures,
            "gaps": {"shards": shards, "oldest": [asdict(gap) for gap in gaps]},
            "positions": {str(p): o for p, o in (self._positions or {}).items()},
        }

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
