"""The house rules, checked: lint, types, who imports whom, where SQL may be, what no file names."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
FOLDERS = ("api", "bench", "contracts", "feeds", "finalizer", "flink_jobs", "ports", "simulation", "sql", "stack")
GENERATED = re.compile(r"_pb2\.pyi?$")
# Taken over as it is from ../shared; the rules of this house don't hold there.
FOREIGN = {"tests/scenarios/oracle.py", "tests/scenarios/generate.py"}


def tracked_files() -> list[str]:
    """What git tracks; a clean export without git would have no rule to check, so it must be a checkout."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


def run_tool(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-2000:]}"


def test_lint() -> None:
    run_tool(str(BIN / "ruff"), "check", "--no-cache", ".")  # a cached verdict can be another checkout's


def test_types() -> None:
    run_tool(str(BIN / "mypy"))


def test_import_contracts() -> None:
    run_tool(str(BIN / "lint-imports"))


def test_pyflink_only_in_the_driver() -> None:
    importing = {
        name
        for name in tracked_files()
        if name.endswith(".py")
        and name.split("/")[0] in FOLDERS
        and re.search(r"^\s*(?:from|import) pyflink", (ROOT / name).read_text(), re.MULTILINE)
    }
    assert importing == {"flink_jobs/driver.py"}


SQL_STATEMENT = re.compile(
    r"\b(?:SELECT\s.+?\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+(?:TABLE|SCHEMA|INDEX)|DROP\s+(?:TABLE|SCHEMA))\b",
    re.DOTALL,
)


def test_sql_only_in_sql() -> None:
    elsewhere = [
        name
        for name in tracked_files()
        if name.endswith(".py")
        and name.split("/")[0] in FOLDERS
        and not name.startswith("sql/")
        and SQL_STATEMENT.search((ROOT / name).read_text())
    ]
    assert elsewhere == []


def test_the_sql_rule_can_fail() -> None:
    assert SQL_STATEMENT.search('run("SELECT a,\n b FROM alerts")')
    assert SQL_STATEMENT.search("UPDATE alerts SET status = 'X'")


def test_no_file_names_a_registry_host() -> None:
    hosts = [
        "py" + "pi.org",
        "pythonhosted" + ".org",
        "repo1.maven" + ".org",
        "repo.maven.apache" + ".org",
        "registry.npmjs" + ".org",
        "deb.debian" + ".org",
    ]
    naming = [(name, host) for name in tracked_files() for host in hosts if host.encode() in (ROOT / name).read_bytes()]
    assert naming == []


def test_the_lock_pins_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    pinned = set(re.findall(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    names = {re.split(r"[\[<>=!~ ;]", w, maxsplit=1)[0].lower().replace("_", "-") for w in wanted}
    assert names - pinned == set()


def test_generated_frames_are_those_of_the_proto(tmp_path: Path) -> None:
    run_tool(sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", "contracts/frames.proto")
    assert (tmp_path / "contracts/frames_pb2.py").read_text() == (ROOT / "contracts/frames_pb2.py").read_text()


@pytest.mark.parametrize("limit", [400])
def test_no_god_files(limit: int) -> None:
    """Most files are under 300 lines; none of ours is past this."""
    long = {
        name: lines
        for name in tracked_files()
        if name.endswith(".py") and not GENERATED.search(name) and name not in FOREIGN and not name.startswith("tests/")
        if (lines := len((ROOT / name).read_text().splitlines())) > limit
    }
    assert long == {}
