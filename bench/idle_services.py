"""What the finalizer's services cost while nothing happens: `python -m bench.idle_services [SECONDS]`.

Each as its own process with the shipped settings, on an embedded broker and database of its own that is deleted again.
The last line is JSON: CPU seconds a second (1.0 is one core) by service, and of Postgres for all of them together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.cpu_usage import CpuUsage
from contracts.topics import ALL_TOPICS
from ports.secrets import new_key
from sql.migrate import migrate
from stack.embedded import KAFKA, POSTGRES, EmbeddedStack
from stack.postgres import server
from stack.progress import step
from stack.settings import StackSettings
from stack.topics import ensure_topics

SERVICES: Final = ("consumer", "rule-relay", "sweeper", "trigger-relay", "notifier")
SETTLE_SECONDS: Final = 5.0
SCHEMA: Final = "idle"


def measure(seconds: float) -> dict[str, float]:
    """CPU seconds a second by service."""
    home = Path(tempfile.mkdtemp(prefix="alerts-idle-"))
    home.chmod(0o711)  # Postgres's account must enter it
    stack = EmbeddedStack(StackSettings().model_copy(update={"home": home, "flink_port": None, "api_port": None}))
    with ExitStack() as ending:
        ending.callback(stack.destroy)
        stack.up((KAFKA, POSTGRES))
        ensure_topics(stack.kafka, "", ALL_TOPICS)
        migrate(stack.postgres_dsn, SCHEMA)
        environment = {
            **os.environ, "ALERTS_KAFKA": stack.kafka, "ALERTS_POSTGRES_DSN": stack.postgres_dsn,
            "ALERTS_POSTGRES_SCHEMA": SCHEMA, "ALERTS_TOPIC_PREFIX": "", "ALERTS_SECRET_KEY": new_key(),
        }  # fmt: skip
        processes = {}
        for name in SERVICES:
            command = [sys.executable, "-m", "finalizer", name]
            processes[name] = ending.enter_context(
                subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            ending.callback(processes[name].terminate)
        postgres = next(state.pid for state in stack.supervisor.states().values() if state.name == server.NAME)
        time.sleep(SETTLE_SECONDS)
        with step(f"measuring for {seconds:.0f} s"):
            usage = CpuUsage({**{name: process.pid for name, process in processes.items()}, "postgres": postgres})
            time.sleep(seconds)
            used = usage.seconds()
        gone = [name for name, process in processes.items() if process.poll() is not None]
        if gone:
            raise RuntimeError(f"{', '.join(gone)} ended while being measured; run `python -m finalizer {gone[0]}`")
    return {name: round(spent / seconds, 4) for name, spent in used.items()}


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    found = measure(seconds)
    sys.stdout.write(json.dumps({"bench": "idle-services", "seconds": seconds, "cores": found}) + "\n")


if __name__ == "__main__":
    main()
