"""The two cores as a job runs them, in two generations of their code that number their outputs differently.

New code without state takes a new epoch, because the same number must never mean two things. So that this matters in a
simulation, code of an even generation writes one entry more at a key's beginning than code of an odd one.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts import frames_pb2 as pb
from contracts.keys import bucket_of_shard
from contracts.topics import CANDIDATES, SHARD_LOG
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.rolling import RollingCore
from flink_jobs.domain.state import MemoryState, Output


class RollingCode:
    """Audit records are not written: nothing in the world reads them."""

    def __init__(self, key: str, state: MemoryState, epoch: int, generation: int) -> None:
        self._core = RollingCore(state, *bucket_of_shard(key), epoch)
        self._first = generation % 2 == 0

    def process(self, value: bytes) -> Iterator[tuple[str, Output]]:
        for output in self._core.process(value).metrics:
            if not self._first:
                yield SHARD_LOG.name, output
                continue
            record = pb.ShardLogRecord.FromString(output.value)
            frame = record.metrics
            if frame.first_number == 1:
                more = pb.MetricFrame(shard=frame.shard, epoch=frame.epoch, first_number=1, count=1)
                more.controls.add().flush.SetInParent()
                yield SHARD_LOG.name, _with(output, pb.ShardLogRecord(metrics=more).SerializeToString())
            frame.first_number += 1
            yield SHARD_LOG.name, _with(output, record.SerializeToString())


class MatcherCode:
    """An entry of an unknown kind is what a newer writer may send: it takes its number, and nothing else."""

    def __init__(self, key: str, state: MemoryState, epoch: int, generation: int) -> None:
        self._core = MatcherCore(state, key, epoch)
        self._first = generation % 2 == 0

    def process(self, value: bytes) -> Iterator[tuple[str, Output]]:
        for output in self._core.process(value):
            if not self._first:
                yield CANDIDATES.name, output
                continue
            frame = pb.CandidateFrame.FromString(output.value)
            if frame.first_number == 1:
                more = pb.CandidateFrame(shard=frame.shard, epoch=frame.epoch, first_number=1)
                more.entries.add(position=0)
                yield CANDIDATES.name, _with(output, more.SerializeToString())
            frame.first_number += 1
            yield CANDIDATES.name, _with(output, frame.SerializeToString())


def _with(output: Output, value: bytes) -> Output:
    return Output(output.key, value, output.timestamp_ms)
