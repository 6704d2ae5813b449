"""`./alerts` and `java.sh`: quick when all is there, one exact line when something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stack.settings import REPOSITORY

TOOLS = ["bash", "sh", "dirname", "readlink", "sha256sum", "cut", "cat", "flock", "id", "sed", "head", "grep", "uname"]


def run(command: list[str], path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={"PATH": str(path), **env}, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A PATH with the shell's tools and nothing else: no Python, no Java, no apt-get."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        if found is not None:
            (folder / tool).symlink_to(found)
    return folder


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What `./alerts` needs of a fresh clone, without an environment."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("alerts", "requirements.lock"):
        shutil.copy(REPOSITORY / name, folder / name)
    return folder


def test_missing_python_is_one_exact_line(clone: Path, bare_path: Path) -> None:
    result = run([str(clone / "alerts"), "--help"], bare_path)
    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr == (
        "alerts: Python 3.11 is missing; run as root: apt-get install -y python3.11 python3.11-venv\n"
    )
    assert not (clone / ".venv").exists()


def test_missing_venv_module_is_one_exact_line(clone: Path, bare_path: Path) -> None:
    python = bare_path / "python3.11"
    python.write_text(f'#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; *) exec {sys.executable} "$@";; esac\n')
    python.chmod(0o755)
    result = run([str(clone / "alerts"), "up"], bare_path)
    assert result.returncode == 3
    assert result.stderr == (
        "alerts: Python's venv module is missing; run as root: apt-get install -y python3.11-venv\n"
    )


def test_runs_from_any_folder_through_a_link_and_installs_nothing_again(
    clone: Path, bare_path: Path, tmp_path: Path
) -> None:
    """With a stamp that fits the lock, nothing but the command runs."""
    venv_bin = clone / ".venv" / "bin"
    venv_bin.mkdir(parents=True)
    (venv_bin / "python").write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    (venv_bin / "python").chmod(0o755)
    digest = subprocess.run(
        ["sha256sum", str(clone / "requirements.lock")], capture_output=True, text=True, check=True
    ).stdout.split()[0]
    (clone / ".venv" / ".alerts-lock").write_text(digest)
    link = tmp_path / "linked"
    link.symlink_to(clone / "alerts")
    result = subprocess.run(
        [str(link), "status", "--json"],
        env={"PATH": str(bare_path)},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{clone} -m stack status --json\n"


def test_missing_java_is_one_exact_line(bare_path: Path) -> None:
    result = run(["/bin/sh", str(REPOSITORY / "stack" / "java.sh")], bare_path)
    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr == (
        "Java 17+ or Maven is missing; run as root: apt-get install -y openjdk-17-jre-headless maven\n"
    )


@pytest.mark.parametrize(
    ("version", "accepted"),
    [('openjdk version "1.8.0_402"', False), ('openjdk version "11.0.22" 2024', False),
     ('openjdk version "17.0.15" 2025', True), ('openjdk version "21" 2023', True)],
)  # fmt: skip
def test_java_version(bare_path: Path, version: str, accepted: bool) -> None:
    for name in ("java", "mvn"):
        (bare_path / name).write_text(f"#!/bin/sh\necho '{version}' >&2\n")
        (bare_path / name).chmod(0o755)
    result = run(["/bin/sh", str(REPOSITORY / "stack" / "java.sh")], bare_path)
    assert (result.returncode == 0) == accepted
    if not accepted:
        assert "apt-get install -y openjdk-17-jre-headless\n" in result.stderr


def test_fault_is_one_sentence_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = subprocess.run(
        [sys.executable, "-m", "stack", "up"], cwd=REPOSITORY, capture_output=True, text=True, check=False,
        env={**os.environ, "ALERTS_HOME": str(tmp_path / "file" / "home")},
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("alerts: the home folder cannot be written: Not a directory")
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_down_and_status_without_a_stack(tmp_path: Path) -> None:
    env = {**os.environ, "ALERTS_HOME": str(tmp_path / "none")}
    for command, code, words in (("down", 0, "nothing to stop"), ("status", 1, "run ./alerts up")):
        result = subprocess.run(
            [sys.executable, "-m", "stack", command],
            cwd=REPOSITORY,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == code
        assert words in result.stderr
