"""Java and the jars that the pip packages lack: resolved once by Maven into a cache keyed by the pom."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from stack.errors import StackError
from stack.files import locked
from stack.progress import step

_HERE = Path(__file__).resolve().parent
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
KAFKA_POM = _HERE / "kafka" / "pom.xml"
FLINK_POM = _HERE / "flink" / "pom.xml"


@cache
def find_java_home() -> Path:
    """The Java to run everything with; installs it where that is allowed, else says what to install."""
    result = subprocess.run(
        ["/bin/sh", str(_HERE / "java.sh")], stdout=subprocess.PIPE, stderr=None, text=True, check=False
    )
    home = result.stdout.strip()
    if result.returncode != 0 or not home:
        raise StackError("Java 17 or newer and Maven are needed", remedy="the line above says what to install")
    return Path(home)


def cache_folder() -> Path:
    """What can be fetched or built again, shared by all homes of a user."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    return Path(base) / "rolling-alerts"


def resolve_jars(pom: Path) -> Path:
    """The folder with the pom's jars; quick when it is there."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    folder = cache_folder() / "jars" / f"{pom.parent.name}-{digest}"
    if folder.is_dir():
        return folder
    java_home = find_java_home()
    with (
        locked(folder.with_suffix(".lock"), busy="another process resolves the jars", wait_s=600),
        step(f"resolving the jars of {pom.parent.name} with Maven"),
    ):
        if not folder.is_dir():
            _copy_dependencies(pom, folder, java_home)
    return folder


def _copy_dependencies(pom: Path, folder: Path, java_home: Path) -> None:
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [
        "mvn", "-B", "-q", "-f", str(pom), f"{_PLUGIN}:copy-dependencies",
        "-DincludeScope=runtime", f"-DoutputDirectory={partial}",
    ]  # fmt: skip
    result = subprocess.run(
        command, env={**os.environ, "JAVA_HOME": str(java_home)}, capture_output=True, text=True, check=False
    )
    if result.returncode != 0 or not any(partial.glob("*.jar")):
        lines = [line for line in (result.stdout + result.stderr).splitlines() if "ERROR" in line]
        raise StackError(
            "Maven could not resolve the jars",
            where=str(pom),
            remedy="check the network and Maven's settings: " + " ".join(lines[:2])[:400],
        )
    partial.rename(folder)


def prepare_jars() -> None:
    """Everything that Java needs, for commands that will start a stack later."""
    find_java_home()
    resolve_jars(KAFKA_POM)
    resolve_jars(FLINK_POM)
