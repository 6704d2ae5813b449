"""The cores behind each other in one process, with the logs between them kept as lists.

    prices ──► RollingCore a bucket ──► shard log ──► MatcherCore a shard ──► candidates ──► AlertTable
                                            ▲ commands ◄────────────────────────────────────────┘

Every stage reads its log from a position, as a job reads Kafka; a stage can be set back to a checkpoint, and then
writes again what it wrote since, as a job that was killed does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from contracts.keys import bucket_shard
from finalizer.domain.batch import ReceivedFrame, decode_frame, plan_batch
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.rolling import RollingCore
from flink_jobs.domain.state import MemoryState, Output
from stack.replay.alert_table import AlertTable

EPOCH: Final = 1
MAX_BATCH_RECORDS: Final = 64

Record = tuple[str, bytes]  # key, value


class Core(Protocol):
    """A keyed core: one record in, records for the next log out."""

    def process(self, value: bytes) -> Iterable[Output]: ...


class _Rolling:
    """Leaves the audit out."""

    def __init__(self, core: RollingCore) -> None:
        self._core = core

    def process(self, value: bytes) -> Iterable[Output]:
        return self._core.process(value).metrics


@dataclass(frozen=True)
class Checkpoint:
    """Where a stage stood: its position in its log, and the state of each key."""

    position: int
    states: Mapping[str, MemoryState]


@dataclass
class Stage:
    """One keyed job over one log."""

    make: Callable[[str, MemoryState], Core]
    source: list[Record]
    sink: list[Record]
    position: int = 0
    states: dict[str, MemoryState] = field(default_factory=dict)
    cores: dict[str, Core] = field(default_factory=dict)

    def run(self) -> bool:
        """Process everything that is there; False when nothing was."""
        worked = False
        while self.position < len(self.source):
            key, value = self.source[self.position]
            core = self.cores.get(key)
            if core is None:
                core = self.cores[key] = self.make(key, self.states.setdefault(key, MemoryState()))
            self.sink.extend((output.key, output.value) for output in core.process(value))
            self.position += 1
            worked = True
        return worked

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.position, {key: state.copy() for key, state in self.states.items()})

    def restore(self, checkpoint: Checkpoint) -> None:
        """As after a kill: memory is gone, state is the checkpoint's, the log is read again from there."""
        self.position = checkpoint.position
        self.states = {key: state.copy() for key, state in checkpoint.states.items()}
        self.cores = {}


class CorePipeline:
    """One feed from its price frames to its alerts."""

    def __init__(self, feed: str, buckets: int) -> None:
        self.prices: list[Record] = []
        self.shard_log: list[Record] = []
        self.candidates: list[Record] = []
        self.alerts = AlertTable()
        self._finalized = 0
        bucket_of_key = {bucket_shard(feed, bucket): bucket for bucket in range(buckets)}
        self.rolling = Stage(
            lambda key, state: _Rolling(RollingCore(state, feed, bucket_of_key[key], EPOCH)),
            self.prices,
            self.shard_log,
        )
        self.matcher = Stage(lambda key, state: MatcherCore(state, key, EPOCH), self.shard_log, self.candidates)

    @property
    def stages(self) -> tuple[Stage, Stage]:
        return self.rolling, self.matcher

    def settle(self) -> None:
        """Until nothing is left to do anywhere."""
        worked = True
        while worked:
            self.shard_log.extend(self.alerts.take_commands())
            worked = self.rolling.run()
            worked |= self.matcher.run()
            worked |= self._finalize()

    def _finalize(self) -> bool:
        batch = self.candidates[self._finalized : self._finalized + MAX_BATCH_RECORDS]
        if not batch:
            return False
        frames = [ReceivedFrame("candidates", decode_frame(key.encode(), value)) for key, value in batch]
        self.alerts.apply(plan_batch(frames, self.alerts.progress))
        self._finalized += len(batch)
        return True
