"""The rolling job: price frames of every bucket in, metrics of every shard out. How to submit it: docs/flink.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import chain, repeat
from typing import Final

from contracts.keys import bucket_of_shard
from contracts.topics import AUDIT, PRICES, SHARD_LOG
from flink_jobs.arguments import parse_arguments
from flink_jobs.domain.frame_error import FrameError
from flink_jobs.domain.rolling import RollingCore
from flink_jobs.domain.state import Output, StateMap
from flink_jobs.driver import CoreJob, RefusedRecordError, submit
from flink_jobs.frame_keys import price_frame_key


class RollingMetrics:
    """A bucket's core as the driver sees it."""

    def __init__(self, state: StateMap, epoch: int, key: str) -> None:
        feed, bucket = bucket_of_shard(key)
        self._core = RollingCore(state, feed, bucket, epoch)

    def process(self, record: bytes) -> Iterator[tuple[str, Output]]:
        """Metrics into the shard log, what was not evaluated into the audit."""
        try:
            outputs = self._core.process(record)
        except FrameError as error:
            raise RefusedRecordError(str(error)) from error
        return chain(zip(repeat(SHARD_LOG.name), outputs.metrics), zip(repeat(AUDIT.name), outputs.audit))

    def totals(self) -> dict[str, int]:
        counts = self._core.counts
        return {"ticks_rejected": counts.rejected, "ticks_duplicate": counts.duplicate, "ticks_late": counts.late}


JOB: Final = CoreJob(
    name="rolling-metrics",
    source=PRICES,
    main_output=SHARD_LOG,
    side_outputs=(AUDIT,),
    key_of=price_frame_key,
    open_core=RollingMetrics,
)


def main() -> None:
    """The entry point of `flink run`."""
    submit(JOB, parse_arguments(JOB.name, sys.argv[1:]))


if __name__ == "__main__":
    # by its own name, so that the workers import these classes instead of unpickling copies of them
    import_module("flink_jobs.rolling_metrics").main()
