"""Ports on the loopback: chosen once, kept in the home, moved when a stranger sits on one."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from stack.errors import StackError
from stack.files import read_json, write_json

LOOPBACK = "127.0.0.1"
# Below Linux's ephemeral range: an outgoing connection can't take a port while its owner is down.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_ATTEMPTS = 200
# Pages that people type in keep their usual number when it is free.
_PREFERRED = {"flink_rest": 8081, "main_api": 8080}


@dataclass(frozen=True)
class PortHolder:
    """Who listens on a port; the pid is unknown when it belongs to another user."""

    port: int
    pid: int | None
    command: str

    def __str__(self) -> str:
        who = f"pid {self.pid}, {self.command}" if self.pid else "a process of another user"
        return f"port {self.port} is taken by {who}"


def is_free(port: int) -> bool:
    """Whether we could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def find_holder(port: int) -> PortHolder:
    """The process that listens on the port, as far as we may see."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        connections = []
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            if connection.pid is None:
                break
            try:
                command = " ".join(psutil.Process(connection.pid).cmdline())[:120]
            except psutil.Error:
                command = "unknown"
            return PortHolder(port, connection.pid, command)
    return PortHolder(port, None, "")


class Ports:
    """Named ports of one home."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports: dict[str, int] = read_json(path, {})

    def get(self, name: str) -> int:
        """The stored port; `choose` must have been called once."""
        if name not in self._ports:
            raise StackError(f"no port has been chosen for {name}", where=str(self._path), remedy="run ./alerts up")
        return self._ports[name]

    def choose(self, name: str, *, pinned: int | None = None) -> tuple[int, str | None]:
        """A port to start `name` on, and a note when it had to move. Call it only while `name` is down."""
        if pinned is not None:
            if not is_free(pinned):
                raise StackError(
                    str(find_holder(pinned)), where=f"wanted for {name}", remedy="stop it or choose another port"
                )
            return self._keep(name, pinned), None
        stored = self._ports.get(name)
        if stored is not None and is_free(stored):
            return stored, None
        note = None if stored is None else f"{find_holder(stored)}; {name} moves to another port"
        return self._keep(name, self._find_free(_PREFERRED.get(name))), note

    def forget(self, name: str) -> None:
        """Give a name's port back."""
        if self._ports.pop(name, None) is not None:
            write_json(self._path, self._ports)

    def _keep(self, name: str, port: int) -> int:
        if self._ports.get(name) != port:
            self._ports[name] = port
            write_json(self._path, self._ports)
        return port

    def _find_free(self, preferred: int | None) -> int:
        taken = set(self._ports.values())
        if preferred is not None and preferred not in taken and is_free(preferred):
            return preferred
        chooser = random.SystemRandom()
        for _ in range(_ATTEMPTS):
            port = chooser.randint(_FIRST_PORT, _LAST_PORT)
            if port not in taken and is_free(port):
                return port
        raise StackError(f"no free port between {_FIRST_PORT} and {_LAST_PORT}", remedy="stop some servers")
