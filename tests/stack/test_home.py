"""The home folder: its lock, its secrets, its counters, and what is said when it can't be used."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from stack.embedded import EmbeddedStack
from stack.epochs import counter_file
from stack.errors import StackError
from stack.files import last_lines, read_json, write_json
from stack.home import Home
from stack.log_rotation import rotate_logs
from stack.settings import StackSettings, default_shared_buffers_mib, load_settings


def _try_lock(root: Path, outcome: multiprocessing.Queue[str]) -> None:
    try:
        with Home(root).locked(wait_s=0.2):
            outcome.put("held")
    except StackError as error:
        outcome.put(str(error))


def _lock_elsewhere(root: Path) -> str:
    context = multiprocessing.get_context("spawn")
    outcome: multiprocessing.Queue[str] = context.Queue()
    process = context.Process(target=_try_lock, args=(root, outcome))
    process.start()
    text = outcome.get(timeout=30)
    process.join()
    return text


def test_two_commands_do_not_change_one_stack_at_once(tmp_path: Path) -> None:
    with Home(tmp_path).locked(wait_s=1):
        assert "another alerts command is starting or stopping this stack" in _lock_elsewhere(tmp_path)
    assert _lock_elsewhere(tmp_path) == "held"


def test_unusable_home_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StackError, match=r"home folder cannot be written.*file.*ALERTS_HOME"):
        Home(tmp_path / "file" / "home").prepare()


def test_secret_stays_and_is_for_the_owner_alone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    secret = home.secret("postgres-password")
    assert Home(tmp_path).secret("postgres-password") == secret
    assert len(secret) >= 24
    assert (tmp_path / "secrets" / "postgres-password").stat().st_mode & 0o077 == 0


def test_socket_path_stays_short_in_a_deep_home(tmp_path: Path) -> None:
    deep = Home(tmp_path / ("x" * 120))
    assert len(os.fsencode(deep.supervisor_socket)) < 90
    assert deep.supervisor_socket != Home(tmp_path / ("y" * 120)).supervisor_socket


def test_epochs_rise_over_restarts_and_processes(tmp_path: Path) -> None:
    path = tmp_path / "counters.json"
    first = counter_file(path, lambda: 0)
    assert [first("a"), first("b"), counter_file(path, lambda: 0)("a")] == [1, 2, 3]
    assert read_json(path, None) == {"epoch": 3}


def test_a_lost_home_does_not_use_an_epoch_again(tmp_path: Path) -> None:
    path = tmp_path / "counters.json"
    before = [counter_file(path, lambda: 1_000)("a") for _ in range(3)]
    path.unlink()
    assert (before, counter_file(path, lambda: 1_060)("a")) == ([1_000, 1_001, 1_002], 1_060)
    assert counter_file(path, lambda: 500)("a") == 1_061, "a clock that was set back takes nothing away"


def test_epochs_are_seconds_of_the_wall_clock(tmp_path: Path) -> None:
    before = int(time.time())
    assert before <= counter_file(tmp_path / "counters.json")("a") <= int(time.time())


def test_damaged_file_is_named_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "counters.json"
    path.write_text("{")
    with pytest.raises(StackError, match=r"damaged.*counters\.json"):
        counter_file(path)("a")
    assert path.read_text() == "{"


def test_json_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "value.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert read_json(path, None) == {"a": 2}
    assert list(path.parent.iterdir()) == [path]


def test_last_lines_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert last_lines(log) == ["(no log)"]
    log.write_text("")
    assert last_lines(log) == ["(the log is empty)"]
    log.write_text("".join(f"line {number}\n" for number in range(5_000)))
    assert last_lines(log, 2) == ["line 4998", "line 4999"]


def test_log_rotation_keeps_the_writer_writing(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("ab", buffering=0) as writer:
        for text in (b"first.....", b"second....", b"third....."):
            writer.write(text)
            assert rotate_logs(tmp_path, limit_bytes=5) == ["a.log"]
        writer.write(b"new")
        assert rotate_logs(tmp_path, limit_bytes=5) == []
    assert log.read_bytes() == b"new"
    assert (tmp_path / "a.log.1").read_bytes() == b"third....."
    assert (tmp_path / "a.log.2").read_bytes() == b"second...."
    assert not (tmp_path / "a.log.3").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALERTS_TASK_SLOTS", "none"),
        ("ALERTS_API_PORT", "70000"),
        ("ALERTS_LOG_LEVEL", "loud"),
        ("ALERTS_KAFKA_HEAP_MIB", "1"),
    ],
)
def test_wrong_setting_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(StackError, match=f"{name} is not usable"):
        load_settings()


def test_home_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALERTS_HOME", str(tmp_path / "here"))
    assert EmbeddedStack().home.root == tmp_path / "here"


def test_existing_servers_are_used(tmp_path: Path) -> None:
    settings = StackSettings(home=tmp_path, kafka="broker:9092", postgres_dsn="postgresql://db/alerts")
    stack = EmbeddedStack(settings)
    assert (stack.kafka, stack.postgres_dsn) == ("broker:9092", "postgresql://db/alerts")


@pytest.mark.parametrize(("total_gib", "buffers_mib"), [(1, 128), (12, 1024), (24, 2048), (256, 2048)])
def test_shared_buffers_follow_the_machine(total_gib: int, buffers_mib: int) -> None:
    assert default_shared_buffers_mib(total_gib * 2**30) == buffers_mib
