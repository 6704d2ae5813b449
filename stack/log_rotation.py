"""Rotation of logs that their writers keep open in append mode: copied aside, then cut to nothing in place."""

from __future__ import annotations

import shutil
from pathlib import Path

LIMIT_BYTES = 20 * 2**20
KEPT = 2


def rotate_logs(folder: Path, limit_bytes: int = LIMIT_BYTES) -> list[str]:
    """Rotate what has grown beyond the limit; returns its names. A line written in between is lost, no more."""
    rotated = []
    for log in sorted(folder.glob("*.log")):
        if log.stat().st_size <= limit_bytes:
            continue
        for number in range(KEPT, 1, -1):
            older = log.with_suffix(f".log.{number - 1}")
            if older.exists():
                older.replace(log.with_suffix(f".log.{number}"))
        shutil.copyfile(log, log.with_suffix(".log.1"))
        with log.open("r+b") as file:
            file.truncate(0)
        rotated.append(log.name)
    return rotated
