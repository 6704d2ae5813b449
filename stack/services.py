"""The table of our own processes: one row a service, in the order they start. Add a row to add a service."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

from stack.settings import REPOSITORY


@dataclass(frozen=True)
class Service:
    """A process of an environment, `python -m <module> <args>`, configured by ALERTS_… variables alone."""

    name: str
    module: str
    args: tuple[str, ...] = ()
    # Lower starts first and stops last; feeds stop first, so that nothing new comes in.
    priority: int = 500
    has_port: bool = False
    stop_wait_s: int = 20

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, "-m", self.module, *self.args)

    @property
    def exists(self) -> bool:
        """Whether this checkout has the module."""
        spec = importlib.util.find_spec(self.module)
        if spec is None:
            return False
        return spec.submodule_search_locations is None or any(
            (Path(folder) / "__main__.py").is_file() for folder in spec.submodule_search_locations
        )


@dataclass(frozen=True)
class Job:
    """A Flink job of an environment, by its file."""

    name: str
    file: Path

    @property
    def exists(self) -> bool:
        return self.file.is_file()


SERVICES: tuple[Service, ...] = (
    Service("finalizer", "finalizer", ("consumer",), priority=400),
    Service("rule-relay", "finalizer", ("rule-relay",), priority=410),
    Service("sweeper", "finalizer", ("sweeper",), priority=420),
    Service("shard-upkeep", "finalizer", ("shard-upkeep",), priority=425),
    Service("trigger-relay", "finalizer", ("trigger-relay",), priority=430),
    Service("notifier", "finalizer", ("notifier",), priority=440, stop_wait_s=60),
    Service("api", "api", priority=450, has_port=True),
    Service("archive", "feeds.archive", priority=460),
    Service("feeds", "feeds", priority=600),
)
FIRST_TO_STOP = ("feeds",)

JOBS: tuple[Job, ...] = (
    Job("rolling-metrics", REPOSITORY / "flink_jobs" / "rolling_metrics.py"),
    Job("threshold-matcher", REPOSITORY / "flink_jobs" / "threshold_matcher.py"),
)
