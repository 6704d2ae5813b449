"""A standalone session cluster from the pip package: one JobManager and one TaskManager, in the foreground."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx

from stack.flink.configuration import find_distribution, write_configuration
from stack.flink.rest import FlinkRest
from stack.home import Home
from stack.jars import find_java_home
from stack.listening_ports import LOOPBACK, Ports
from stack.program import Program, inherited_env
from stack.settings import StackSettings

JOBMANAGER = "flink-jobmanager"
TASKMANAGER = "flink-taskmanager"


class FlinkCluster:
    """The cluster of one home."""

    def __init__(self, home: Home, settings: StackSettings, ports: Ports) -> None:
        self._home = home
        self._settings = settings
        self._ports = ports

    @property
    def rest_url(self) -> str:
        return f"http://{LOOPBACK}:{self._ports.get('flink_rest')}"

    def choose_ports(self) -> list[str]:
        notes = [
            self._ports.choose("flink_rest", pinned=self._settings.flink_port)[1],
            self._ports.choose("flink_rpc")[1],
        ]
        return [note for note in notes if note]

    def prepare(self) -> None:
        write_configuration(self._home, self._settings, self._ports)

    def programs(self) -> tuple[Program, Program]:
        return (
            self._program(JOBMANAGER, "jobmanager.sh", priority=200),
            self._program(TASKMANAGER, "taskmanager.sh", priority=210),
        )

    def is_ready(self) -> bool:
        """Whether the JobManager answers and the TaskManager has offered its slots."""
        try:
            with FlinkRest(self.rest_url) as rest:
                return rest.slots_total() >= self._settings.task_slots
        except httpx.HTTPError:
            return False

    def _program(self, name: str, script: str, priority: int) -> Program:
        return Program(
            name=name,
            command=("/bin/bash", str(find_distribution() / "bin" / script), "start-foreground"),
            directory=self._home.flink,
            env={**inherited_env(), **flink_environment(self._home)},
            start_s=5,
            stop_wait_s=20,
            priority=priority,
        )


def flink_environment(home: Home) -> dict[str, str]:
    """The environment of every Flink process of the home, clients included."""
    java_home = find_java_home()
    python_bin = Path(sys.executable).parent
    flink = home.flink
    path = inherited_env().get("PATH", "/usr/bin:/bin")
    return {
        "FLINK_CONF_DIR": str(flink / "conf"),
        "FLINK_LOG_DIR": str(flink / "log"),
        "FLINK_PID_DIR": str(flink / "pids"),
        "FLINK_LIB_DIR": str(flink / "lib"),
        "FLINK_IDENT_STRING": "alerts",
        "JAVA_HOME": str(java_home),
        # pyflink's scripts call plain `python`
        "PATH": f"{python_bin}:{java_home / 'bin'}:{path}",
        # jobs import the packages of this repository
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent),
    }
