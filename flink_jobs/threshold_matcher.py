"""The matcher job: every shard's log in, claims out. Submit with `flink run`, docs/flink.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import repeat
from typing import Final

from contracts.topics import CANDIDATES, SHARD_LOG
from flink_jobs.arguments import parse_arguments
from flink_jobs.domain.frame_error import FrameError
from flink_jobs.domain.matcher import MatcherCore
from flink_jobs.domain.state import Output, StateMap
from flink_jobs.driver import CoreJob, RefusedRecordError, submit
from flink_jobs.frame_keys import shard_log_key


class ThresholdMatcher:
    """A shard's core as the driver sees it."""

    def __init__(self, state: StateMap, epoch: int, key: str) -> None:
        self._core = MatcherCore(state, key, epoch)

    def process(self, record: bytes) -> Iterator[tuple[str, Output]]:
        """Activations, candidates, frontiers and markers. The state is written behind the last of them."""
        try:
            outputs = self._core.process(record)
        except FrameError as error:
            raise RefusedRecordError(str(error)) from error
        return zip(repeat(CANDIDATES.name), outputs)

    def totals(self) -> dict[str, int]:
        activity = self._core.activity
        return {
            "candidates": activity.candidates,
            "activations": activity.activations,
            "commands_refused": activity.refused_commands,
            "frames_known": activity.ignored_known,
            "frames_after_a_gap": activity.ignored_gap,
            "frames_of_an_old_epoch": activity.ignored_old_epoch,
        }


JOB: Final = CoreJob(
    name="threshold-matcher",
    source=SHARD_LOG,
    main_output=CANDIDATES,
    side_outputs=(),
    key_of=shard_log_key,
    open_core=ThresholdMatcher,
)


def main() -> None:
    """The entry point of `flink run`."""
    submit(JOB, parse_arguments(JOB.name, sys.argv[1:]))


if __name__ == "__main__":
    # by its own name, so that the workers import these classes instead of unpickling copies of them
    import_module("flink_jobs.threshold_matcher").main()
