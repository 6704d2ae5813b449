"""Which small files of a bucket become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from feeds.archive.file_name import ArchiveFile, around

MAX_MERGED_BYTES: Final = 8 * 1024 * 1024  # about 3 M ticks, which fit into memory
MERGE_FILES: Final = 32  # so many small files of a day that goes on; of one that is over, two
SMALL_BYTES: Final = MAX_MERGED_BYTES // 8
TINY_BYTES: Final = 32 * 1024  # so small a day may share a file with others


def plan_merge(
    files: Sequence[ArchiveFile], sizes: Mapping[ArchiveFile, int], over_before_day: int
) -> list[ArchiveFile]:
    """Files to merge next; empty when all is well. over_before_day: earlier days get late ticks alone."""
    by_days: dict[tuple[int, int], list[ArchiveFile]] = {}
    tiny = []
    for file in files:
        if sizes[file] >= MAX_MERGED_BYTES // 2:
            continue
        by_days.setdefault((file.first_day, file.last_day), []).append(file)
        if sizes[file] < TINY_BYTES and file.last_day < over_before_day:
            tiny.append(file)
    for (_, last_day), of_days in by_days.items():
        if last_day < over_before_day:
            chosen = _choose(of_days, 2, files, sizes)
        else:
            chosen = _choose([file for file in of_days if sizes[file] < SMALL_BYTES], MERGE_FILES, files, sizes)
        if chosen:
            return chosen
    return _choose(tiny, MERGE_FILES, files, sizes)


def _choose(
    wanted: Sequence[ArchiveFile], least: int, files: Sequence[ArchiveFile], sizes: Mapping[ArchiveFile, int]
) -> list[ArchiveFile]:
    """As many of the wanted as fit, oldest first, with what lies between them."""
    chosen: list[ArchiveFile] = []
    size = 0
    for file in sorted(wanted, key=lambda f: (f.first_offset, f.first_day)):
        if size + sizes[file] > MAX_MERGED_BYTES:
            break
        chosen.append(file)
        size += sizes[file]
    if len(chosen) < least:
        return []
    closed = _close(chosen, files)
    return closed if sum(sizes[file] for file in closed) <= MAX_MERGED_BYTES else []


def _close(chosen: Iterable[ArchiveFile], files: Sequence[ArchiveFile]) -> list[ArchiveFile]:
    """With every file that the rectangle around them meets: what it claims to hold, it holds."""
    closed = set(chosen)
    while True:
        whole = around(closed)
        more = {file for file in files if file.meets(whole)} - closed
        if not more:
            return sorted(closed, key=lambda f: (f.first_offset, f.first_day))
        closed |= more
