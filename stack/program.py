"""One supervised process: what to run and how, and the files that tell supervisord so."""

from __future__ import annotations

import hashlib
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from stack.files import write_atomically
from stack.home import Home

# Every process of a stack carries these two, so that orphans are recognised after a kill -9 of the supervisor.
HOME_MARK = "ALERTS_STACK_HOME"
PROGRAM_MARK = "ALERTS_STACK_PROGRAM"

# supervisord waits one second longer after each failed start and then gives up; the keeper wakes it again.
_START_RETRIES = 12


@dataclass(frozen=True)
class Program:
    """A process in the foreground. `name` is unique in a home: `kafka`, `main-feeds`."""

    name: str
    command: tuple[str, ...]
    directory: Path
    env: dict[str, str] = field(default_factory=dict)
    user: str | None = None
    stop_signal: str = "TERM"
    stop_wait_s: int = 30
    # A failed start is one that ends within this time.
    start_s: int = 1
    # Lower starts first and stops last.
    priority: int = 500
    # Services write a health file; infrastructure is probed over its own protocol.
    writes_health: bool = False
    # Where script and pid file go when the program's user can't enter the home.
    run_folder: Path | None = None

    def pid_file(self, home: Home) -> Path:
        return (self.run_folder or home.pids) / f"{self.name}.pid"

    def log_file(self, home: Home) -> Path:
        return home.logs / f"{self.name}.log"

    def health_file(self, home: Home) -> Path:
        return home.health / f"{self.name}.json"

    def script_file(self, home: Home) -> Path:
        return (self.run_folder or home.programs) / f"{self.name}.sh"


def render_script(program: Program, home: Home) -> str:
    """A script that anybody can read, and run by hand, to see exactly how the program is started."""
    env = {HOME_MARK: str(home.root), PROGRAM_MARK: program.name, **program.env}
    if program.writes_health:
        env["ALERTS_HEALTH_FILE"] = str(program.health_file(home))
    lines = ["#!/bin/sh", "# Written by `alerts up`; edits are lost.", "umask 077"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(env.items())]
    lines += [
        f"echo $$ > {shlex.quote(str(program.pid_file(home)))}",
        f"cd {shlex.quote(str(program.directory))} || exit 70",
        # Into the file itself, not through the supervisor's pipe: without a supervisor a write must not kill us.
        *([] if program.user else [f"exec >>{shlex.quote(str(program.log_file(home)))} 2>&1"]),
        f"exec {shlex.join(program.command)}",
    ]
    return "\n".join(lines) + "\n"


def render_section(program: Program, home: Home, fingerprint: str) -> str:
    """The supervisor's section. `fingerprint` makes supervisord notice a changed script."""

    def escaped(value: object) -> str:
        return str(value).replace("%", "%%")

    lines = [
        f"[program:{program.name}]",
        f"command=/bin/sh {escaped(shlex.quote(str(program.script_file(home))))} {fingerprint}",
        "directory=/",
        "autostart=false",
        "autorestart=true",
        f"startsecs={program.start_s}",
        f"startretries={_START_RETRIES}",
        f"stopsignal={program.stop_signal}",
        f"stopwaitsecs={program.stop_wait_s}",
        "killasgroup=true",
        "stopasgroup=false",
        f"priority={program.priority}",
    ]
    if program.user:
        # another account may not write into the home; the supervisor does it for it
        lines += [
            f"user={program.user}",
            "redirect_stderr=true",
            f"stdout_logfile={escaped(program.log_file(home))}",
            "stdout_logfile_maxbytes=20MB",
            "stdout_logfile_backups=2",
        ]
    else:
        lines += ["stdout_logfile=NONE", "stderr_logfile=NONE"]
    return "\n".join(lines) + "\n"


def write_program(program: Program, home: Home) -> Path:
    """Write script and section; returns the section's file."""
    script = render_script(program, home)
    # Another user must be able to read it; everybody else must not see the passwords in it.
    write_atomically(program.script_file(home), script, 0o755 if program.user else 0o700)
    section = home.programs / f"{program.name}.conf"
    write_atomically(section, render_section(program, home, _fingerprint(script)), 0o600)
    return section


def remove_program_files(name: str, home: Home) -> None:
    for path in (home.programs / f"{name}.conf", home.programs / f"{name}.sh", home.health / f"{name}.json"):
        path.unlink(missing_ok=True)


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def inherited_env() -> dict[str, str]:
    """What every program takes over from the caller: nothing of ALERTS_…, so that a home's setup is complete."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "JAVA_HOME", "TMPDIR", "USER")
    return {name: os.environ[name] for name in kept if name in os.environ}
