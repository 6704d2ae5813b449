"""supervisord: starting it, and talking to it over its unix socket."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
import xmlrpc.client
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psutil

from stack.errors import ComponentDiedError, StackError
from stack.files import last_lines, write_atomically
from stack.home import Home
from stack.orphans import recorded_process
from stack.program import HOME_MARK, PROGRAM_MARK, Program, inherited_env, remove_program_files, write_program

_START_TIMEOUT_S = 20.0
_RPC_TIMEOUT_S = 120.0
# supervisor.xmlrpc.Faults
_NOT_RUNNING, _ALREADY_STARTED, _BAD_NAME, _ALREADY_ADDED = 70, 60, 10, 90
_GIVEN_UP = ("FATAL", "UNKNOWN")
_FAILING = (*_GIVEN_UP, "BACKOFF")


class SupervisorGoneError(StackError):
    """Nobody answers on the supervisor's socket."""

    def __init__(self, home: str, cause: str) -> None:
        super().__init__(f"the stack's supervisor does not answer: {cause}", where=home, remedy="run ./alerts up")


@dataclass(frozen=True)
class ProgramState:
    """What supervisord knows of one program."""

    name: str
    state: str
    pid: int
    started_at_s: int
    exit_status: int

    @property
    def is_running(self) -> bool:
        return self.state == "RUNNING"

    @property
    def is_up(self) -> bool:
        """Running, or about to be."""
        return self.state in ("RUNNING", "STARTING")

    @property
    def is_failing(self) -> bool:
        return self.state in _FAILING

    @property
    def is_given_up(self) -> bool:
        return self.state in _GIVEN_UP


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_RPC_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unix.settimeout(_RPC_TIMEOUT_S)
        try:
            unix.connect(str(self._path))
        except OSError:
            unix.close()
            raise
        self.sock = unix


class _UnixTransport(xmlrpc.client.Transport):
    """XML-RPC over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        # kept where Transport.close finds it
        self._connection = host, _UnixConnection(self._path)
        return self._connection[1]


class Supervisor:
    """The supervisor of one home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    # --- the supervisor itself

    def is_alive(self) -> bool:
        try:
            return bool(self._call("getState")["statecode"] == 1)
        except (SupervisorGoneError, xmlrpc.client.Error):
            return False

    def start(self) -> None:
        """Start supervisord with no program; it outlives us."""
        home = self._home
        config = home.run / "supervisord.conf"
        write_atomically(config, self._render_config(), 0o600)
        home.supervisor_socket.unlink(missing_ok=True)
        environment = {**inherited_env(), HOME_MARK: str(home.root), PROGRAM_MARK: "supervisord"}
        result = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "supervisor.supervisord", "-c", str(config)],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", check=False,
        )  # fmt: skip
        if result.returncode != 0:
            raise StackError("supervisord does not start", remedy=(result.stdout + result.stderr).strip()[-800:])
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self.is_alive():
            if time.monotonic() > deadline:
                log = home.logs / "supervisord.log"
                raise ComponentDiedError("supervisord", str(log), last_lines(log))
            time.sleep(0.05)

    def shut_down(self) -> None:
        """End supervisord; it stops what still runs, lowest priority last."""
        process = recorded_process(self._home.supervisor_pid_file)
        self._call("shutdown")
        if process is not None:
            try:
                process.wait(timeout=_RPC_TIMEOUT_S)
            except psutil.TimeoutExpired:
                raise StackError("supervisord does not end", where=f"pid {process.pid}", remedy="kill it") from None

    # --- programs

    def add(self, program: Program) -> None:
        """Put the program in; one that runs with another setup is restarted with the new one."""
        write_program(program, self._home)
        _, changed, _ = self._reload()
        if program.name in changed:
            self.stop(program.name)
            self._call("removeProcessGroup", program.name)
        try:
            self._call("addProcessGroup", program.name)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != _ALREADY_ADDED:
                raise

    def start_program(self, name: str) -> None:
        """Ask for a start; does nothing when it runs already. Doesn't wait."""
        try:
            self._call("startProcess", name, False)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != _ALREADY_STARTED:
                raise StackError(f"{name} cannot be started: {fault.faultString}") from None

    def stop(self, name: str) -> None:
        """Stop and wait; a program that isn't there is stopped."""
        try:
            self._call("stopProcess", name, True)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode not in (_NOT_RUNNING, _BAD_NAME):
                raise StackError(f"{name} cannot be stopped: {fault.faultString}") from None

    def remove(self, name: str) -> None:
        """Stop the program and forget it."""
        self.stop(name)
        try:
            self._call("removeProcessGroup", name)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != _BAD_NAME:
                raise
        remove_program_files(name, self._home)
        self._reload()

    def states(self) -> dict[str, ProgramState]:
        infos = cast("list[dict[str, Any]]", self._call("getAllProcessInfo"))
        return {
            info["name"]: ProgramState(info["name"], info["statename"], info["pid"], info["start"], info["exitstatus"])
            for info in infos
        }

    def check_starting(self, program: Program) -> None:
        """Raise with the end of its log when the program has died during its start."""
        state = self.states().get(program.name)
        if state is not None and state.is_failing:
            log = program.log_file(self._home)
            raise ComponentDiedError(program.name, str(log), last_lines(log))

    def _reload(self) -> tuple[list[str], list[str], list[str]]:
        added, changed, removed = cast("list[list[list[str]]]", self._call("reloadConfig"))[0]
        return added, changed, removed

    def _call(self, method: str, *arguments: object) -> Any:
        transport = _UnixTransport(self._home.supervisor_socket)
        with xmlrpc.client.ServerProxy("http://localhost", transport=transport) as proxy:
            try:
                return getattr(proxy.supervisor, method)(*arguments)
            except (OSError, http.client.HTTPException) as error:
                raise SupervisorGoneError(str(self._home.root), str(error)) from None

    def _render_config(self) -> str:
        home = self._home

        def escaped(path: Path) -> str:
            return str(path).replace("%", "%%")

        user = "user=root\n" if os.geteuid() == 0 else ""
        return (
            "[unix_http_server]\n"
            f"file={escaped(home.supervisor_socket)}\nchmod=0600\n\n"
            "[rpcinterface:supervisor]\n"
            "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface\n\n"
            "[supervisord]\n"
            f"logfile={escaped(home.logs / 'supervisord.log')}\nlogfile_maxbytes=5MB\nlogfile_backups=2\n"
            f"pidfile={escaped(home.supervisor_pid_file)}\nidentifier=rolling-alerts\nnodaemon=false\n"
            f"minfds=8192\nstrip_ansi=true\nchildlogdir={escaped(home.logs)}\n{user}\n"
            "[include]\n"
            f"files = {escaped(home.programs)}/*.conf\n"
        )
