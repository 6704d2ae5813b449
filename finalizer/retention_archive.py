"""Where ended alerts go before they are dropped: files of JSON lines, one a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import zstandard

LEVEL: Final = 6


class RetentionArchive:
    """A page is on the disk before its rows are dropped; after a crash between the two it is written again, the same
    alerts under the same first number. Readers take the newest line of an alert."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError when the folder can't be made."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, rows: Sequence[Any]) -> None:
        """`alerts-<first>-<last>.jsonl.zst`, each line `{"alert": …, "trigger": …, "deliveries": […]}`."""
        first, last = rows[0]["alert"]["alert_id"], rows[-1]["alert"]["alert_id"]
        path = self._folder / f"alerts-{first:015d}-{last:015d}.jsonl.zst"
        lines = b"".join(orjson.dumps(row) + b"\n" for row in rows)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            file.write(zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(lines))
            file.flush()
            os.fsync(file.fileno())
        if path.exists():  # the same numbers again: the rows of an earlier life stay beside them
            path = path.with_name(f"{path.name.removesuffix('.jsonl.zst')}.{path.stat().st_mtime_ns}.jsonl.zst")
        part.rename(path)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
