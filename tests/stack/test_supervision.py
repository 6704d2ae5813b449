"""A real supervisord: programs come, are restarted, change, die at start, are found as orphans, go."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from stack.errors import ComponentDiedError, StackError
from stack.home import Home
from stack.orphans import find_processes, recorded_process, stop_processes
from stack.program import HOME_MARK, Program, render_script
from stack.supervision import Supervisor

SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    home.prepare()
    yield home
    supervisor = Supervisor(home)
    if supervisor.is_alive():
        supervisor.shut_down()
    stop_processes(find_processes(home))


@pytest.fixture
def supervisor(home: Home) -> Supervisor:
    supervisor = Supervisor(home)
    supervisor.start()
    return supervisor


def wait_for(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def sleeper(home: Home, name: str = "sleeper", **env: str) -> Program:
    return Program(name=name, command=SLEEP, directory=home.root, env=env)


def start(supervisor: Supervisor, program: Program) -> int:
    supervisor.add(program)
    supervisor.start_program(program.name)
    wait_for(lambda: supervisor.states()[program.name].is_running)
    return supervisor.states()[program.name].pid


def test_killed_program_comes_back(home: Home, supervisor: Supervisor) -> None:
    program = sleeper(home)
    pid = start(supervisor, program)
    assert recorded_process(program.pid_file(home)) == psutil.Process(pid)
    psutil.Process(pid).kill()
    wait_for(lambda: supervisor.states()["sleeper"].is_running and supervisor.states()["sleeper"].pid != pid)


def test_same_setup_is_left_alone_and_another_one_restarts(home: Home, supervisor: Supervisor) -> None:
    pid = start(supervisor, sleeper(home))
    assert start(supervisor, sleeper(home)) == pid
    other = start(supervisor, sleeper(home, COLOUR="50% 'blue'"))
    assert other != pid
    assert psutil.Process(other).environ()["COLOUR"] == "50% 'blue'"


def test_program_that_dies_shows_the_end_of_its_log(home: Home, supervisor: Supervisor) -> None:
    program = Program("broken", (sys.executable, "-c", "raise SystemExit('no such broker')"), home.root)
    supervisor.add(program)
    supervisor.start_program("broken")

    def check() -> bool:
        supervisor.check_starting(program)
        return False

    with pytest.raises(ComponentDiedError, match=r"broken does not stay up.*\n.*no such broker"):
        wait_for(check)


def test_removed_program_is_gone_with_its_files(home: Home, supervisor: Supervisor) -> None:
    pid = start(supervisor, sleeper(home))
    supervisor.remove("sleeper")
    assert not psutil.pid_exists(pid)
    assert "sleeper" not in supervisor.states()
    assert list(home.programs.iterdir()) == []
    supervisor.remove("sleeper")  # a second time is no fault


def test_orphans_of_a_killed_supervisor_are_found_and_stopped(home: Home, supervisor: Supervisor) -> None:
    pids = {start(supervisor, sleeper(home, name)) for name in ("one", "two")}
    recorded = recorded_process(home.supervisor_pid_file)
    assert recorded is not None
    recorded.kill()
    recorded.wait(10)
    orphans = find_processes(home)
    assert {orphan.pid for orphan in orphans} == pids
    assert {orphan.program for orphan in orphans} == {"one", "two"}
    stop_processes(orphans)
    assert find_processes(home) == []
    with pytest.raises(StackError, match=r"supervisor does not answer.*run \./alerts up"):
        supervisor.states()
    supervisor.start()
    assert supervisor.is_alive()


def test_program_writes_on_after_its_supervisor_is_gone(home: Home, supervisor: Supervisor) -> None:
    talk = "import time\nfor n in range(10**6): print('still here', n, flush=True); time.sleep(0.02)"
    program = Program("talker", (sys.executable, "-c", talk), home.root)
    pid = start(supervisor, program)
    recorded = recorded_process(home.supervisor_pid_file)
    assert recorded is not None
    recorded.kill()
    recorded.wait(10)
    size = program.log_file(home).stat().st_size
    wait_for(lambda: program.log_file(home).stat().st_size > size + 1_000)
    assert psutil.Process(pid).is_running()


def test_processes_of_another_home_are_not_ours(home: Home, supervisor: Supervisor, tmp_path: Path) -> None:
    start(supervisor, sleeper(home))
    assert find_processes(Home(tmp_path / "other")) == []


def test_pid_file_of_a_number_given_to_another_process_is_not_believed(home: Home) -> None:
    # init has this pid for longer than the file exists
    stale = home.pids / "kafka.pid"
    stale.write_text("1\n")
    assert recorded_process(stale) is None
    stale.write_text("garbage")
    assert recorded_process(stale) is None
    assert find_processes(home) == []


def test_script_says_everything_and_hides_it_from_others(home: Home, supervisor: Supervisor) -> None:
    program = sleeper(home, ALERTS_POSTGRES_DSN="postgresql://a:it's secret@127.0.0.1/x")
    start(supervisor, program)
    text = program.script_file(home).read_text()
    assert text == render_script(program, home)
    assert f"export {HOME_MARK}={home.root}" in text
    assert program.script_file(home).stat().st_mode & 0o077 == 0
