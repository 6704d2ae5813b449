"""A Flink job as its records see it: keyed cores over a log, checkpoints, restarts, at-least-once sinks.

The driver's promises, and no more: state and positions are checkpointed together, after what was written before is
acknowledged; a restart goes on from a checkpoint and writes again what it wrote since; an old attempt may still write
for a while, but can't complete a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from flink_jobs.domain.frame_error import FrameError
from flink_jobs.domain.state import MemoryState, Output
from ports.message_log import LogError, LogRecord
from simulation.log import SimulatedLog
from simulation.turns import Turns

RETAINED_CHECKPOINTS: Final = 3


class Core(Protocol):
    """One key's core: (topic, record) in order."""

    def process(self, value: bytes) -> Iterable[tuple[str, Output]]: ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a job stood."""

    epoch: int
    generation: int
    offsets: Mapping[int, int]
    states: Mapping[str, MemoryState]


@dataclass
class SimulatedJob:
    """What outlives an attempt: checkpoints and the number of the newest attempt."""

    name: str
    source: str
    make_core: Callable[[str, MemoryState, int, int], Core]  # key, state, epoch, generation of the code
    log: SimulatedLog
    turns: Turns
    draw: Callable[[int], int]
    sleep: Callable[[int], None]
    idle_ms: Callable[[int], int]  # the rest that follows one of so long
    clean_epoch: int = 1
    generation: int = 0
    attempt: int = 0
    checkpoints: list[Checkpoint] = field(default_factory=list)
    refused: int = 0

    def lose_state(self) -> None:
        """The next attempt begins at the log's beginning, with newer code, under an epoch above any before."""
        self.checkpoints.clear()
        self.generation += 1
        self.clean_epoch += 1

    def forget_newest(self, checkpoints: int) -> None:
        """The next attempt restores an older one, as an operator may who picks a savepoint."""
        if checkpoints < len(self.checkpoints):
            del self.checkpoints[len(self.checkpoints) - checkpoints :]

    def idle(self) -> bool:
        """Whether the newest checkpoint is the end of the log."""
        ends = {partition: end for partition, (_, end) in self.log.memory.ends(self.source).items()}
        return bool(self.checkpoints) and dict(self.checkpoints[-1].offsets) == ends

    def run(self) -> None:
        """One attempt. Ends by being killed, by LogError, or in silence when a newer one has begun meanwhile."""
        self.attempt += 1
        mine = self.attempt
        try:
            self._run(mine)
        except LogError:
            if mine == self.attempt:
                raise

    def _run(self, mine: int) -> None:
        restored = self.checkpoints[-1] if self.checkpoints else None
        partitions = range(self.log.memory.count(self.source))
        offsets = dict(restored.offsets) if restored else dict.fromkeys(partitions, 0)
        states = {key: state.copy() for key, state in restored.states.items()} if restored else {}
        epoch = restored.epoch if restored else self.clean_epoch
        generation = restored.generation if restored else self.generation
        cores: dict[str, Core] = {}
        reader, writer = self.log.reader(), self.log.writer()
        reader.assign({(self.source, partition): offset for partition, offset in offsets.items()})
        fresh = rest_ms = 0
        while True:
            records = reader.poll(16, 0)
            for record in records:
                for topic, output in self._process(record, cores, states, epoch, generation):
                    writer.append(topic, output.key.encode(), output.value, output.timestamp_ms)
                offsets[record.partition] = record.offset + 1
                if self.draw(4) == 0:
                    writer.flush()
            fresh += len(records)
            if fresh and (not records or fresh > 4 + self.draw(40)):
                writer.flush()
                self._complete(
                    mine, Checkpoint(epoch, generation, dict(offsets), {k: s.copy() for k, s in states.items()})
                )
                fresh = 0
            rest_ms = 0 if records else self.idle_ms(rest_ms)
            if rest_ms:
                self.sleep(rest_ms)

    def _process(
        self, record: LogRecord, cores: dict[str, Core], states: dict[str, MemoryState], epoch: int, generation: int
    ) -> Iterable[tuple[str, Output]]:
        key = record.key.decode()
        core = cores.get(key)
        if core is None:
            core = cores[key] = self.make_core(key, states.setdefault(key, MemoryState()), epoch, generation)
        try:
            return list(core.process(record.value))
        except FrameError:
            self.refused += 1
            return ()

    def _complete(self, attempt: int, checkpoint: Checkpoint) -> None:
        self.turns.pause("job.checkpoint")
        if attempt == self.attempt:  # the coordinator has no ear for an attempt that is over
            self.checkpoints.append(checkpoint)
            del self.checkpoints[:-RETAINED_CHECKPOINTS]
