"""What the matcher says of bytes it can't read: records (the driver dead-letters them) and state (nothing helps)."""

from __future__ import annotations


class FrameError(ValueError):
    """A record that is no shard-log record of this shard; `reason` is a short code. Nothing of it was applied."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"shard-log record refused ({reason}): {detail}; dead-letter it and go on")
        self.reason, self.detail = reason, detail


class StateError(RuntimeError):
    """State that this code can't have written; `name` is its key. Restore an older checkpoint or rebuild the shard."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"matcher state {name!r}: {detail}; restore an older checkpoint or rebuild the shard")
        self.name, self.detail = name, detail


class ShardFullError(RuntimeError):
    """A shard beyond a limit of its format."""

    def __init__(self, detail: str) -> None:
        super().__init__(f"this shard is full: {detail}; give the feed more buckets")
        self.detail = detail


class UnfinishedRecordError(RuntimeError):
    """The outputs of a record were not all taken before the next record: the core no longer stands between records."""

    def __init__(self) -> None:
        super().__init__("take every output of a record before the next one; make the core anew from its state")
