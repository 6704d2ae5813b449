"""A file of the archive says by its name what it holds: a rectangle of days and log offsets, and all of it.

`2026-01-05_2026-01-05_000000000120-000000000240.parquet` in `<feed>/<bucket>/`: every accepted tick of that bucket
whose day is in the range and whose record of prices.v1 is in [120, 240). So there is no manifest that could disagree
with the files: a file is there as a whole or not at all, and one that lies within another was merged into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from contracts.vocabulary import DAY_MS

EPOCH: Final = date(1970, 1, 1)
_NAME: Final = re.compile(r"(\d{4}-\d\d-\d\d)_(\d{4}-\d\d-\d\d)_(\d{12,19})-(\d{12,19})\.parquet", re.ASCII)


class ArchiveFile(NamedTuple):
    """Days since 1970, both within; offsets of the bucket's partition, from the first up to before the next."""

    first_day: int
    last_day: int
    first_offset: int
    next_offset: int

    @property
    def name(self) -> str:
        days = f"{_text(self.first_day)}_{_text(self.last_day)}"
        return f"{days}_{self.first_offset:012d}-{self.next_offset:012d}.parquet"

    def contains(self, other: ArchiveFile) -> bool:
        return (
            self.first_day <= other.first_day
            and other.last_day <= self.last_day
            and self.first_offset <= other.first_offset
            and other.next_offset <= self.next_offset
        )

    def meets(self, other: ArchiveFile) -> bool:
        """Whether they have a day and an offset in common."""
        return (
            self.first_day <= other.last_day
            and other.first_day <= self.last_day
            and self.first_offset < other.next_offset
            and other.first_offset < self.next_offset
        )


def read_name(name: str) -> ArchiveFile | None:
    """None when it is no file of the archive's."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        days = [(date.fromisoformat(text) - EPOCH).days for text in match.group(1, 2)]
    except ValueError:
        return None
    return ArchiveFile(days[0], days[1], int(match[3]), int(match[4]))


def around(files: Iterable[ArchiveFile]) -> ArchiveFile:
    """The least rectangle that contains all of them."""
    first_days, last_days, firsts, nexts = zip(*files, strict=True)
    return ArchiveFile(min(first_days), max(last_days), min(firsts), max(nexts))


def list_files(folder: Path) -> list[ArchiveFile]:
    """Everything in a bucket's folder, merged files too; empty when there is no such folder."""
    try:
        found = [read_name(path.name) for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(file for file in found if file is not None)


def split_superseded(files: Sequence[ArchiveFile]) -> tuple[list[ArchiveFile], list[ArchiveFile]]:
    """(those that count, those that were merged into another)."""
    by_size = sorted(files, key=lambda f: (f.first_offset, -f.next_offset, f.first_day, -f.last_day))
    current: list[ArchiveFile] = []
    over: list[ArchiveFile] = []
    open_ones: list[ArchiveFile] = []  # that reach beyond the present first offset
    for file in by_size:
        open_ones = [other for other in open_ones if other.next_offset > file.first_offset]
        if any(other.contains(file) for other in open_ones):
            over.append(file)
        else:
            current.append(file)
            open_ones.append(file)
    return current, over


def bucket_folder(root: Path, feed: str, bucket: int) -> Path:
    return root / feed / f"{bucket:04d}"


def day_of(event_time_ms: int) -> int:
    return event_time_ms // DAY_MS


def _text(day: int) -> str:
    return (EPOCH + timedelta(days=day)).isoformat()
