"""The cluster's configuration files and the folder of jars, made from the pip package's own."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

from stack.errors import StackError
from stack.files import write_atomically
from stack.home import Home
from stack.jars import FLINK_POM, resolve_jars
from stack.listening_ports import LOOPBACK, Ports
from stack.settings import StackSettings

_ALWAYS = 2**31 - 1
# 20 000 symbols' worth of frames in flight need little; the rest of the machine has better use for it
_NETWORK_MIB = 128
_MANAGED_MIB = 128


def find_distribution() -> Path:
    """The Flink distribution inside the pip package, found without importing it."""
    spec = importlib.util.find_spec("pyflink")
    if spec is None or spec.origin is None:
        raise StackError("the package apache-flink is missing", remedy="start through ./alerts")
    return Path(spec.origin).resolve().parent


def checkpoints_folder(home: Home) -> Path:
    return home.flink / "checkpoints"


def savepoints_folder(home: Home) -> Path:
    return home.flink / "savepoints"


def write_configuration(home: Home, settings: StackSettings, ports: Ports) -> None:
    """Everything under `<home>/flink` that the processes read."""
    flink = home.flink
    for name in ("conf", "lib", "log", "pids", "tmp", "checkpoints", "savepoints"):
        (flink / name).mkdir(parents=True, exist_ok=True)
    distribution = find_distribution()
    values = {
        # submission fails on Java 17 without the shipped options
        "env.java.opts.all": _shipped_java_options(distribution),
        **_process_values(home, settings, ports),
        **_state_values(home, settings),
    }
    text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in sorted(values.items()))
    write_atomically(flink / "conf" / "config.yaml", text)
    for name in ("log4j-cli.properties", "log4j-console.properties", "log4j-session.properties"):
        shutil.copyfile(distribution / "conf" / name, flink / "conf" / name)
    _shrink_logs(flink / "conf" / "log4j-console.properties")
    _link_jars(distribution, flink / "lib")


def _process_values(home: Home, settings: StackSettings, ports: Ports) -> dict[str, object]:
    return {
        "jobmanager.rpc.address": LOOPBACK,
        "jobmanager.rpc.port": ports.get("flink_rpc"),
        "jobmanager.bind-host": LOOPBACK,
        "jobmanager.memory.process.size": f"{settings.jobmanager_mib}m",
        "jobmanager.memory.jvm-metaspace.size": "192m",
        "jobmanager.execution.failover-strategy": "region",
        "taskmanager.host": LOOPBACK,
        "taskmanager.bind-host": LOOPBACK,
        "taskmanager.numberOfTaskSlots": settings.task_slots,
        "taskmanager.memory.process.size": f"{settings.taskmanager_mib}m",
        "taskmanager.memory.managed.size": f"{_MANAGED_MIB}m",
        "taskmanager.memory.network.min": f"{_NETWORK_MIB}m",
        "taskmanager.memory.network.max": f"{_NETWORK_MIB}m",
        # RocksDB is the one native user of weight; what it takes must count as off-heap memory
        "taskmanager.memory.task.off-heap.size": f"{settings.rocksdb_mib}m",
        "rest.address": LOOPBACK,
        "rest.bind-address": LOOPBACK,
        "rest.port": ports.get("flink_rest"),
        "rest.bind-port": str(ports.get("flink_rest")),
        "io.tmp.dirs": str(home.flink / "tmp"),
        "web.cancel.enable": True,
        "parallelism.default": 1,
        # a killed TaskManager is noticed within seconds, a garbage collection is not mistaken for a death
        "heartbeat.interval": "1 s",
        "heartbeat.timeout": "8 s",
        "heartbeat.rpc-failure-threshold": 2,
        "pekko.ask.timeout": "20 s",
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.initial-backoff": "200 ms",
        "restart-strategy.exponential-delay.max-backoff": "10 s",
        "restart-strategy.exponential-delay.backoff-multiplier": 1.5,
        "restart-strategy.exponential-delay.reset-backoff-threshold": "1 min",
        "restart-strategy.exponential-delay.attempts-before-reset-backoff": _ALWAYS,
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.fn-execution.bundle.size": settings.bundle_size,
        "python.fn-execution.bundle.time": settings.bundle_time_ms,
        "python.fn-execution.memory.managed": False,
        "pipeline.auto-watermark-interval": "50 ms",
    }


def _state_values(home: Home, settings: StackSettings) -> dict[str, object]:
    return {
        "state.backend.type": "rocksdb",
        # one budget for the TaskManager, so that idle slots don't hoard memory
        "state.backend.rocksdb.memory.fixed-per-tm": f"{settings.rocksdb_mib}m",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.incremental": True,
        "execution.checkpointing.interval": f"{settings.checkpoint_interval_ms} ms",
        "execution.checkpointing.min-pause": f"{settings.checkpoint_interval_ms // 2} ms",
        "execution.checkpointing.timeout": "5 min",
        "execution.checkpointing.tolerable-failed-checkpoints": 3,
        "execution.checkpointing.num-retained": 3,
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.dir": checkpoints_folder(home).as_uri(),
        "execution.checkpointing.savepoint-dir": savepoints_folder(home).as_uri(),
    }


def _shipped_java_options(distribution: Path) -> str:
    lines = (distribution / "conf" / "config.yaml").read_text(encoding="utf-8").splitlines()
    options = [line.strip().removeprefix("all:").strip() for line in lines if line.strip().startswith("all: --add-")]
    if len(options) != 1:
        raise StackError("Flink's shipped configuration has no env.java.opts.all", where=str(distribution / "conf"))
    return options[0]


def _shrink_logs(path: Path) -> None:
    """The shipped setup keeps ten files of 100 MB; the console copy, which supervisord keeps, needs warnings only."""
    text = path.read_text(encoding="utf-8")
    for old, new in (
        ("policies.size.size=100MB", "policies.size.size=20MB"),
        ("MAX_LOG_FILE_NUMBER:-10", "MAX_LOG_FILE_NUMBER:-3"),
        ("console.log.level:-ALL", "console.log.level:-WARN"),
    ):
        text = text.replace(old, new)
    write_atomically(path, text)


def _link_jars(distribution: Path, lib: Path) -> None:
    """A lib folder of links: the distribution's, flink-python, and the Kafka connector."""
    jars = [
        *(distribution / "lib").glob("*.jar"),
        *(distribution / "opt").glob("flink-python-*.jar"),
        *resolve_jars(FLINK_POM).glob("*.jar"),
    ]
    wanted = {jar.name: jar for jar in jars}
    for link in lib.iterdir():
        if link.name not in wanted or link.resolve() != wanted[link.name].resolve():
            link.unlink()
    for name, jar in wanted.items():
        if not (lib / name).exists():
            (lib / name).symlink_to(jar)
