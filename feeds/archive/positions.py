"""How far the archive has read, and what was known there: the one small file beside the Parquet files.

It is replaced after the files of a flush are there. When it is behind them (a kill between the two), their names say
what they hold, and those ticks are not written again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from feeds.archive.parquet_file import ArchiveDiskError, sync_folder

FILE: Final = "positions.json"


class ArchiveStateError(RuntimeError):
    """The folder's positions can't be used; says what to do."""

    def __init__(self, folder: Path, problem: str) -> None:
        super().__init__(
            f"archive folder {folder}: {problem}; set ALERTS_ARCHIVE_FOLDER to another, or move this one away"
        )
        self.folder = folder


class Positions(BaseModel):
    """partition -> next offset; `feed/bucket` -> (lease, frame number, frontier)."""

    model_config = ConfigDict(frozen=True)

    topic: str
    offsets: dict[int, int]
    buckets: dict[str, tuple[int, int, int]] = {}


def load_positions(folder: Path, topic: str) -> Positions | None:
    """None before the first flush. Raises ArchiveStateError."""
    try:
        text = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = Positions.model_validate_json(text)
    except ValidationError:
        raise ArchiveStateError(folder, f"{FILE} is not readable") from None
    if found.topic != topic:
        raise ArchiveStateError(folder, f"it is of the topic {found.topic}, not of {topic}")
    return found


def save_positions(folder: Path, positions: Positions) -> None:
    """Durable. Raises ArchiveDiskError."""
    aside = folder / f"{FILE}.aside"
    try:
        with aside.open("wb") as file:
            file.write(positions.model_dump_json().encode())
            file.flush()
            os.fsync(file.fileno())
        aside.replace(folder / FILE)
        sync_folder(folder)
    except OSError as error:
        raise ArchiveDiskError(folder, error) from None
