"""An instance's folder: data, logs, pids, run files, chosen ports, secrets, and the lock on all of it."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ports.secrets import new_key
from stack.errors import StackError
from stack.files import locked, read_json, write_atomically, write_json

# A unix socket's path may have 107 bytes; supervisord appends its pid to a temporary one.
_SOCKET_PATH_LIMIT = 90


class Home:
    """Paths of one instance. Nothing is created before `prepare`."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.logs = self.root / "logs"
        self.run = self.root / "run"
        self.pids = self.run / "pids"
        self.health = self.run / "health"
        self.programs = self.run / "programs"
        self.jobs = self.root / "jobs"
        self.environments = self.root / "environments"
        self.archives = self.root / "archive"
        self.kafka = self.root / "kafka"
        self.flink = self.root / "flink"
        self.ports_file = self.root / "ports.json"
        self.state_file = self.root / "stack.json"
        self.counters_file = self.root / "counters.json"

    def prepare(self) -> None:
        """Create the folders; an unwritable home is one clear sentence."""
        try:
            for folder in (
                self.root,
                self.logs,
                self.run,
                self.pids,
                self.health,
                self.programs,
                self.jobs,
                self.environments,
            ):
                folder.mkdir(parents=True, exist_ok=True)
            probe = self.run / f".probe.{os.getpid()}"
            probe.write_text("")
            probe.unlink()
            self.socket_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StackError(
                f"the home folder cannot be written: {error.strerror}",
                where=str(error.filename or self.root),
                remedy="give yourself access to it or set ALERTS_HOME to another folder",
            ) from None
        owner = self.socket_folder.stat().st_uid
        if owner != os.geteuid():
            raise StackError(
                "the run folder belongs to another user", where=str(self.socket_folder), remedy="set ALERTS_HOME"
            )

    @property
    def socket_folder(self) -> Path:
        """Where the supervisor's socket lives: the run folder, or a short path when that one is too long."""
        if len(os.fsencode(self.run / "supervisor.sock")) <= _SOCKET_PATH_LIMIT:
            return self.run
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"rolling-alerts-{os.geteuid()}-{digest}"

    @property
    def supervisor_socket(self) -> Path:
        return self.socket_folder / "supervisor.sock"

    @property
    def supervisor_pid_file(self) -> Path:
        return self.pids / "supervisord.pid"

    @contextmanager
    def locked(self, wait_s: float = 120.0) -> Iterator[None]:
        """Only one command at a time changes what runs."""
        self.prepare()
        with locked(
            self.run / "stack.lock", busy="another alerts command is starting or stopping this stack", wait_s=wait_s
        ):
            yield

    def secret(self, name: str) -> str:
        """A random secret, made at first use and readable by the owner alone."""
        path = self.root / "secrets" / name
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, secrets.token_urlsafe(24), 0o600)
        return path.read_text(encoding="utf-8").strip()

    def secret_key(self) -> str:
        """The home's own ALERTS_SECRET_KEY, made at first use: losing it loses the sealed webhook secrets."""
        path = self.root / "secrets" / "secret-key"
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, new_key(), 0o600)
        return path.read_text(encoding="utf-8").strip()

    def state(self) -> dict[str, str]:
        """What is known about the running instance: addresses, kept for `status` and for other processes."""
        stored: dict[str, str] = read_json(self.state_file, {})
        return stored

    def write_state(self, state: dict[str, str]) -> None:
        write_json(self.state_file, state, 0o600)
