"""What a previous run left behind: processes that outlived their supervisor, found by mark, not by name."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from stack.home import Home
from stack.program import HOME_MARK, PROGRAM_MARK

# A pid file is written by the process itself; the clock of its mtime and the process's start differ by little.
_START_SLACK_S = 5.0
_TERM_WAIT_S = 15.0
_KILL_WAIT_S = 10.0


@dataclass(frozen=True)
class Orphan:
    """A process of this home that nobody supervises."""

    pid: int
    program: str
    process: psutil.Process


def find_processes(home: Home, pid_folders: tuple[Path, ...] = ()) -> list[Orphan]:
    """Every process of this home: by the mark in its environment, or by a pid file that fits its start time."""
    found: dict[int, Orphan] = {}
    for process in psutil.process_iter():
        program = _marked_program(process, home)
        if program is not None:
            found[process.pid] = Orphan(process.pid, program, process)
    for folder in (home.pids, *pid_folders):
        for pid_file in sorted(folder.glob("*.pid")):
            recorded = recorded_process(pid_file)
            if recorded is not None and recorded.pid not in found:
                found[recorded.pid] = Orphan(recorded.pid, pid_file.stem, recorded)
    # Never ourselves, nor who called us: a marked program may well run `alerts`.
    for spared in (os.getpid(), *(parent.pid for parent in psutil.Process().parents())):
        found.pop(spared, None)
    return list(found.values())


def find_strays(home: Home, program: str) -> list[psutil.Process]:
    """Processes that the program once started and that are no children of the one that runs now.

    None while it is unknown which one runs: a program that is just starting has strays only by mistake.
    """
    running = recorded_process(home.pids / f"{program}.pid")
    if running is None:
        return []
    try:
        family = {running.pid, *(child.pid for child in running.children(recursive=True))}
        marked = [process for process in psutil.process_iter() if _marked_program(process, home) == program]
        # listed after the family: who is in neither list was born in between
        started = running.create_time()
        return [process for process in marked if process.pid not in family and process.create_time() < started]
    except psutil.Error:
        return []


def recorded_process(pid_file: Path) -> psutil.Process | None:
    """The process that wrote the pid file, unless it is gone and its number was given to another one."""
    try:
        process = psutil.Process(int(pid_file.read_text(encoding="ascii").split()[0]))
        written_at = pid_file.stat().st_mtime
        if process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - written_at) > _START_SLACK_S:
            return None
    except (OSError, ValueError, IndexError, psutil.Error):
        return None
    return process


def stop_processes(orphans: list[Orphan], term_wait_s: float = _TERM_WAIT_S) -> None:
    """Ask, wait, then kill. Their data survives both."""
    processes = [orphan.process for orphan in orphans]
    for process in processes:
        with suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=term_wait_s)
    for process in alive:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=_KILL_WAIT_S)


def _marked_program(process: psutil.Process, home: Home) -> str | None:
    try:
        environment = process.environ()
    except (psutil.Error, OSError):
        return None
    if environment.get(HOME_MARK) != str(home.root):
        return None
    program: str | None = environment.get(PROGRAM_MARK)
    return program
