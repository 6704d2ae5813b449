"""One KRaft broker and controller in one process, on the loopback, from Maven's jars."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from contracts.topics import MAX_BATCH_BYTES
from stack.errors import StackError
from stack.files import write_atomically
from stack.home import Home
from stack.jars import KAFKA_POM, find_java_home, resolve_jars
from stack.listening_ports import LOOPBACK, Ports
from stack.program import Program, inherited_env
from stack.settings import StackSettings

NAME = "kafka"
_PROBE_TIMEOUT_S = 2.0
_FOREVER = 2**63 - 1


class Broker:
    """The broker of one home."""

    def __init__(self, home: Home, settings: StackSettings, ports: Ports) -> None:
        self._home = home
        self._settings = settings
        self._ports = ports
        self._data = home.kafka / "data"
        self._config = home.kafka / "server.properties"

    @property
    def bootstrap_servers(self) -> str:
        return f"{LOOPBACK}:{self._ports.get('kafka')}"

    def choose_ports(self) -> list[str]:
        """Ports to start on, with notes on those that had to move."""
        notes = [self._ports.choose(name)[1] for name in ("kafka", "kafka_controller")]
        return [note for note in notes if note]

    def prepare(self) -> None:
        """Write the configuration; format the data folder the first time."""
        write_atomically(self._config, self._render_config())
        if not (self._data / "meta.properties").exists():
            self._format()

    def program(self) -> Program:
        heap = self._settings.kafka_heap_mib
        return Program(
            name=NAME,
            command=(
                *self._java(f"-Xms{min(256, heap)}m", f"-Xmx{heap}m", "-XX:MaxGCPauseMillis=20"),
                "kafka.Kafka",
                str(self._config),
            ),
            directory=self._home.kafka,
            env=inherited_env(),
            start_s=2,
            stop_wait_s=60,
            priority=100,
        )

    def is_ready(self) -> bool:
        return answers(self.bootstrap_servers)

    def _java(self, *options: str) -> tuple[str, ...]:
        log_setup = Path(__file__).resolve().parent / "log4j2.properties"
        return (
            str(find_java_home() / "bin" / "java"),
            "-XX:+UseG1GC",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={log_setup}",
            *options,
            "-cp",
            f"{resolve_jars(KAFKA_POM)}/*",
        )

    def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._data.mkdir(parents=True, exist_ok=True)
        result = subprocess.run(
            [
                *self._java("-XX:TieredStopAtLevel=1"),
                "kafka.tools.StorageTool", "format", "--ignore-formatted", f"--cluster-id={cluster_id}",
                "--config", str(self._config),
            ],
            env={**os.environ}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if result.returncode != 0:
            raise StackError(
                "Kafka's data folder cannot be formatted", where=str(self._data), remedy=result.stderr.strip()[-600:]
            )

    def _render_config(self) -> str:
        broker, controller = self._ports.get("kafka"), self._ports.get("kafka_controller")
        lines = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{broker},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{broker}",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self._data,
            "auto.create.topics.enable": "false",
            # one broker: everything has one replica
            "default.replication.factor": 1,
            "min.insync.replicas": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # record timestamps are event times, see DESIGN "Kafka topics"
            "log.retention.ms": -1,
            "log.roll.ms": _FOREVER,
            "log.message.timestamp.after.max.ms": _FOREVER,
            "log.message.timestamp.before.max.ms": _FOREVER,
            "log.segment.bytes": 256 * 2**20,
            "message.max.bytes": MAX_BATCH_BYTES,
            # two cores are shared with everything else
            "num.network.threads": 2,
            "num.io.threads": 4,
            "num.recovery.threads.per.data.dir": 2,
            "log.cleaner.dedupe.buffer.size": 16 * 2**20,
            "queued.max.requests": 200,
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())


def answers(bootstrap_servers: str) -> bool:
    """Whether a broker lists its topics there."""
    try:
        # the client's own complaints about a broker that is still starting are not news
        client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, "socket.timeout.ms": 2_000})
        return bool(client.list_topics(timeout=_PROBE_TIMEOUT_S).brokers)
    except KafkaException:
        return False
