"""What was ever submitted under a job's name, and the newest state among all of it."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from stack.files import read_json, write_json

_CHECKPOINT = re.compile(r"chk-(\d+)$")
# Attempts whose checkpoints stay on disk beside the newest one's.
_KEPT_ATTEMPTS = 2
# Attempts that the record remembers.
_REMEMBERED_ATTEMPTS = 200


@dataclass(frozen=True)
class Attempt:
    """One submission. It is recorded before it is made, under a job id that we chose."""

    job_id: str
    epoch: int
    restored_from: str | None
    submitted_at_ms: int
    # set once the cluster has shown the job
    confirmed: bool = False
    # where `down` left its state
    savepoint: str | None = None


@dataclass(frozen=True)
class JobRecord:
    """All attempts, oldest first."""

    attempts: tuple[Attempt, ...] = field(default=())

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def highest_epoch(self) -> int:
        return max((attempt.epoch for attempt in self.attempts), default=0)

    def with_attempt(self, attempt: Attempt) -> JobRecord:
        return JobRecord((*self.attempts, attempt)[-_REMEMBERED_ATTEMPTS:])

    def with_last(self, **changes: object) -> JobRecord:
        """The record with its last attempt changed."""
        return JobRecord((*self.attempts[:-1], replace(self.attempts[-1], **changes)))  # type: ignore[arg-type]


def read_record(path: Path) -> JobRecord:
    stored = read_json(path, {"attempts": []})
    return JobRecord(tuple(Attempt(**attempt) for attempt in stored["attempts"]))


def write_record(path: Path, record: JobRecord) -> None:
    write_json(path, {"attempts": [asdict(attempt) for attempt in record.attempts]})


def find_newest_state(record: JobRecord, checkpoints: Path) -> str | None:
    """Where the next attempt goes on: the latest attempt of the highest epoch that left anything decides.

    Attempts follow one another, so a later attempt's state is newer than any before. A savepoint is the last thing
    that an attempt does, so it is newer than its checkpoints. A folder without `_metadata` was never completed.
    State of an earlier epoch would go on under that one, and readers pass over an epoch that is over.
    """
    for attempt in reversed(record.attempts):
        if attempt.epoch < record.highest_epoch:
            continue
        if attempt.savepoint is not None and _is_complete(Path(attempt.savepoint)):
            return attempt.savepoint
        found = find_checkpoints(checkpoints / attempt.job_id)
        if found:
            return str(found[-1])
    return None


def find_checkpoints(folder: Path) -> list[Path]:
    """An attempt's complete checkpoints, oldest first, by number and not by name."""
    numbered = [(int(match[1]), path) for path in folder.glob("chk-*") if (match := _CHECKPOINT.search(path.name))]
    return [path for _, path in sorted(numbered) if _is_complete(path)]


def drop_old_checkpoints(record: JobRecord, checkpoints: Path) -> None:
    """Remove what nothing restores from any more.

    A job restores without claiming: its first own checkpoint is a full one, so from then on what came before is
    only history. Two older attempts are kept for a person who wants to go back.
    """
    with_state = [attempt for attempt in record.attempts if find_checkpoints(checkpoints / attempt.job_id)]
    if not with_state or with_state[-1] != record.last:
        return
    kept = {attempt.job_id for attempt in with_state[-1 - _KEPT_ATTEMPTS :]}
    for attempt in record.attempts[:-1]:
        if attempt.job_id not in kept:
            shutil.rmtree(checkpoints / attempt.job_id, ignore_errors=True)


def _is_complete(path: Path) -> bool:
    return (path / "_metadata").is_file()
