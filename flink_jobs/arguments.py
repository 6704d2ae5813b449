"""What a job is told on its command line, checked before anything is submitted."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from contracts.keys import MAX_PARALLELISM

DEFAULT_CHECKPOINT_INTERVAL_MS: Final = 5_000
MIN_CHECKPOINT_INTERVAL_MS: Final = 100
MAX_EPOCH: Final = 2**63 - 1

_PREFIX: Final = re.compile(r"[a-zA-Z0-9._-]{0,60}")
_OFFSETS: Final = re.compile(r"\d+=\d+(?:,\d+=\d+)*")


@dataclass(frozen=True, slots=True)
class StartAt:
    """Where a job without state begins: `earliest`, `timestamp` (epoch ms) or `offsets` (partition -> offset)."""

    kind: str
    timestamp_ms: int = 0
    offsets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class JobArguments:
    """One run of a job. `parallelism` and `job_name` None: as the cluster's configuration says."""

    bootstrap: str
    topic_prefix: str
    epoch: int
    parallelism: int | None
    job_name: str | None
    start: StartAt
    checkpoint_interval_ms: int


def parse_arguments(program: str, argv: Sequence[str]) -> JobArguments:
    """Read the command line. A wrong one ends the process with status 2 and one sentence on stderr."""
    parser = argparse.ArgumentParser(program, description="Submit with `flink run`; see docs/flink.md.")
    parser.add_argument(
        "--bootstrap", "--kafka", required=True, type=_nonempty, help="Kafka bootstrap servers, host:port[,host:port]"
    )
    parser.add_argument("--topic-prefix", default="", type=_prefix, help="put before every topic's name")
    parser.add_argument(
        "--epoch",
        required=True,
        type=_integer("an epoch", 1, MAX_EPOCH),
        help="used only where there is no state: must be above every epoch that this job ever had in these topics",
    )
    parser.add_argument("--parallelism", type=_integer("a parallelism", 1, MAX_PARALLELISM))
    parser.add_argument("--job-name", type=_nonempty, help=f"default: pipeline.name, else <prefix>{program}")
    parser.add_argument(
        "--from",
        dest="start",
        default=StartAt("earliest"),
        type=_start,
        help="where to begin without state: earliest, timestamp:EPOCH_MS or offsets:PARTITION=OFFSET,…",
    )
    parser.add_argument(
        "--checkpoint-interval-ms",
        default=DEFAULT_CHECKPOINT_INTERVAL_MS,
        type=_integer("a checkpoint interval", MIN_CHECKPOINT_INTERVAL_MS, 3_600_000),
        help="used when the configuration names no interval (default %(default)s)",
    )
    return JobArguments(**vars(parser.parse_args(argv)))


class _integer:  # noqa: N801 - argparse calls it like a function
    def __init__(self, what: str, least: int, most: int) -> None:
        self._what, self._least, self._most = what, least, most

    def __call__(self, text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII) or not self._least <= int(text) <= self._most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {self._what} from {self._least} to {self._most}")
        return int(text)


def _nonempty(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: a topic prefix has at most 60 letters, digits, '.', '_', '-'")
    return text


def _start(text: str) -> StartAt:
    kind, _, detail = text.partition(":")
    if kind == "earliest" and not detail:
        return StartAt("earliest")
    if kind == "timestamp" and re.fullmatch(r"[0-9]{1,18}", detail, re.ASCII):
        return StartAt("timestamp", timestamp_ms=int(detail))
    if kind == "offsets" and _OFFSETS.fullmatch(detail):
        pairs = [pair.split("=") for pair in detail.split(",")]
        offsets = {int(partition): int(offset) for partition, offset in pairs}
        if len(offsets) == len(pairs):
            return StartAt("offsets", offsets=tuple(sorted(offsets.items())))
    raise argparse.ArgumentTypeError(
        f"{text!r}: say earliest, timestamp:EPOCH_MS or offsets:PARTITION=OFFSET,… with each partition once"
    )
