"""Numbered candidate entries, gathered into bounded frames."""

from __future__ import annotations

from typing import Final

from contracts import frames_pb2 as pb
from flink_jobs.domain.state import Output

MAX_FRAME_ENTRIES: Final = 1_000


class CandidateWriter:
    """Gives entries their numbers; a full frame comes out of `add`, the rest out of `flush`."""

    def __init__(self, shard: str, epoch: int, last_number: int) -> None:
        self._shard, self._epoch = shard, epoch
        self.last_number = last_number
        self._frame = pb.CandidateFrame()
        self._newest_ms = 0

    def add(self, entry: pb.CandidateEntry, time_ms: int) -> Output | None:
        """Take an entry; `time_ms` is the event time in it."""
        self._newest_ms = max(self._newest_ms, time_ms) if self._frame.entries else time_ms
        self._frame.entries.append(entry)
        self.last_number += 1
        return self.flush() if len(self._frame.entries) == MAX_FRAME_ENTRIES else None

    def flush(self) -> Output | None:
        """The frame so far, if it holds anything."""
        entries = len(self._frame.entries)
        if not entries:
            return None
        self._frame.shard, self._frame.epoch = self._shard, self._epoch
        self._frame.first_number = self.last_number - entries + 1
        output = Output(self._shard, self._frame.SerializeToString(), self._newest_ms)
        self._frame = pb.CandidateFrame()
        return output
