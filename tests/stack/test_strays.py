"""A program's children that outlived it are told from those of the one that runs now."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stack.home import Home
from stack.orphans import find_strays
from stack.program import HOME_MARK, PROGRAM_MARK

PARENT = "import subprocess, sys; c = subprocess.Popen(['sleep', '60']); print(c.pid, flush=True); c.wait()"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.pids.mkdir(parents=True)
    return made


@pytest.fixture
def run(home: Home) -> Iterator[object]:
    started: list[subprocess.Popen[str]] = []

    def start(*command: str) -> subprocess.Popen[str]:
        marked = {**os.environ, HOME_MARK: str(home.root), PROGRAM_MARK: "manager"}
        process = subprocess.Popen(command, env=marked, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_only_what_is_older_than_the_running_program_and_no_child_of_it(home: Home, run) -> None:
    stray = run("sleep", "60")
    born = psutil.Process(stray.pid).create_time()
    while (later := run("true")) and psutil.Process(later.pid).create_time() <= born:
        later.wait()  # the kernel stamps processes to a hundredth of a second
    assert find_strays(home, "manager") == []  # unknown who runs: nobody is judged
    manager = run(sys.executable, "-c", PARENT)
    child = int(manager.stdout.readline())
    (home.pids / "manager.pid").write_text(str(manager.pid))
    assert [process.pid for process in find_strays(home, "manager")] == [stray.pid]
    subprocess.run(["kill", str(child)], check=True)
