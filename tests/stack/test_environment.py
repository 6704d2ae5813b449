"""Environments: what their processes are told, and that the home remembers them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.environment import Addresses, Environment, forget, job_spec, load_all, service_env, service_program, store
from stack.errors import StackError
from stack.files import write_json
from stack.health import STALE_AFTER_MS, read_health
from stack.home import Home
from stack.program import render_script
from stack.services import FIRST_TO_STOP, JOBS, SERVICES, Job, Service

ADDRESSES = Addresses("127.0.0.1:1", "postgresql://x", "http://127.0.0.1:2")


def environment_of(name: str, **changes: object) -> Environment:
    return Environment(name, f"{name}.", f"alerts_{name}", **changes)  # type: ignore[arg-type]


def test_environments_survive_in_the_home(tmp_path: Path) -> None:
    home = Home(tmp_path)
    main = environment_of("main", env={"ALERTS_SMTP_PORT": "25"}, job_options={"parallelism.default": "2"})
    replay = environment_of("replay", services=("finalizer",), jobs=())
    for environment in (replay, main):
        store(environment, home)
    assert load_all(home) == [main, replay]
    forget("replay", home)
    forget("replay", home)
    assert load_all(home) == [main]


def test_process_is_told_where_everything_is_and_where_to_report(tmp_path: Path) -> None:
    environment = environment_of("main", env={"ALERTS_SMTP_HOST": "127.0.0.1", "ALERTS_LOG_LEVEL": "debug"})
    env = service_env(environment, ADDRESSES, 8080, "info", Path("/h/archive/main"))
    script = render_script(service_program(environment, SERVICES[0], env, Home(tmp_path)), Home(tmp_path))
    for line in (
        "export ALERTS_KAFKA=127.0.0.1:1",
        "export ALERTS_POSTGRES_DSN=postgresql://x",
        "export ALERTS_POSTGRES_SCHEMA=alerts_main",
        "export ALERTS_TOPIC_PREFIX=main.",
        "export ALERTS_API_PORT=8080",
        "export ALERTS_ARCHIVE_FOLDER=/h/archive/main",
        "export ALERTS_SMTP_HOST=127.0.0.1",
        "export ALERTS_LOG_LEVEL=debug",
        f"export ALERTS_HEALTH_FILE={tmp_path}/run/health/main-{SERVICES[0].name}.json",
    ):
        assert line in script.splitlines()


def test_variables_of_the_caller_do_not_leak_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALERTS_TOPIC_PREFIX", "callers.")
    monkeypatch.setenv("PGPASSWORD", "callers")
    environment = environment_of("main")
    program = service_program(
        environment, SERVICES[0], service_env(environment, ADDRESSES, 1, "info", tmp_path), Home(tmp_path)
    )
    assert "callers" not in render_script(program, Home(tmp_path))


def test_job_knows_its_environment(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("")
    environment = environment_of("bench")
    spec = job_spec(environment, Job("rolling", file), service_env(environment, ADDRESSES, 1, "info", tmp_path))
    assert spec.full_name == "bench-rolling"
    assert spec.args == ("--kafka", "127.0.0.1:1", "--topic-prefix", "bench.")
    with pytest.raises(StackError, match="Python file is missing"):
        job_spec(environment, Job("rolling", tmp_path / "none.py"), {"ALERTS_KAFKA": "x"})


def test_unknown_service_is_named() -> None:
    with pytest.raises(StackError, match="no service fedes: known are finalizer"):
        environment_of("main", services=("fedes",)).find_services()


def test_table_is_sound() -> None:
    names = [row.name for row in (*SERVICES, *JOBS)]
    assert len(set(names)) == len(names)
    assert set(FIRST_TO_STOP) <= set(names)
    last_started = max(SERVICES, key=lambda service: service.priority)
    assert last_started.name in FIRST_TO_STOP
    assert not Service("x", "no_such_module").exists
    assert not Service("x", "stack.jobs").exists, "a package without __main__ can't be run"
    assert Service("x", "stack").exists


@pytest.mark.parametrize(
    ("stored", "ok", "reason"),
    [
        (None, False, "has not reported yet"),
        ({"ok": True, "at_ms": 100_000}, True, "ok"),
        ({"ok": True, "at_ms": 100_000 - STALE_AFTER_MS}, True, "ok"),
        ({"ok": True, "at_ms": 100_000 - STALE_AFTER_MS - 1_000}, False, "silent for 11 s"),
        ({"ok": False, "at_ms": 100_000, "detail": {"error": "no broker"}}, False, "{'error': 'no broker'}"),
    ],
)
def test_health(tmp_path: Path, stored: object, ok: bool, reason: str) -> None:
    path = tmp_path / "health.json"
    if stored is not None:
        write_json(path, stored)
    health = read_health(path, 100_000)
    assert (health.ok, health.reason) == (ok, reason)
