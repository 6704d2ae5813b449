"""`./alerts status`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.table import Table

from stack.embedded import EmbeddedStack
from stack.progress import console, say
from stack.status import StackStatus, gather_status


def command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout instead of tables.")] = False,
) -> None:
    """Show every process, job and topic. Exit code 1 when something isn't well."""
    status = gather_status(EmbeddedStack())
    if as_json:
        sys.stdout.write(json.dumps(status.as_json()) + "\n")
    else:
        show(status)
    raise typer.Exit(0 if status.is_well else 1)


def show(status: StackStatus) -> None:
    if status.problem:
        say(status.problem)
        return
    processes = Table("process", "state", "pid", "up", "restarts", "MiB", "health", title=None)
    for row in status.processes:
        up = f"{row.uptime_s // 60} min {row.uptime_s % 60} s" if row.uptime_s else ""
        processes.add_row(
            row.name, row.state, str(row.pid or ""), up, str(row.restarts), f"{row.memory_mib:.0f}", row.health
        )
    console.print(processes)
    if status.jobs:
        jobs = Table("job", "state", "epoch", "checkpoint age", "bytes", "detail")
        for job in status.jobs:
            age = "" if job.checkpoint_age_s is None else f"{job.checkpoint_age_s} s"
            jobs.add_row(job.name, job.state, str(job.epoch or ""), age, str(job.checkpoint_bytes or ""), job.detail)
        console.print(jobs)
    if status.topics:
        topics = Table("topic", "partitions", "records", "lag")
        for topic in status.topics:
            lag = ", ".join(f"{reader} {records}" for reader, records in topic.lag.items())
            topics.add_row(topic.topic, str(topic.partitions), str(topic.records), lag)
        console.print(topics)
    if status.sources:
        sources = Table("environment", "feed's own source", "ticks", "behind", "fault")
        for source in status.sources:
            behind = "" if source.behind_ms is None else f"{source.behind_ms / 1000:.1f} s"
            sources.add_row(source.environment, source.feed, str(source.taken or ""), behind, source.fault or "")
        console.print(sources)
    for name, url in status.pages.items():
        say(f"{name}: {url}")
    say(f"memory of all: {status.memory_mib:.0f} MiB")
