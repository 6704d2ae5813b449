"""Small files that must survive a kill at any moment: written aside, then renamed."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stack.errors import StackError


def write_atomically(path: Path, text: str, mode: int = 0o644, *, durable: bool = True) -> None:
    """Replace the file as a whole: a reader sees the old text or the new one; if durable, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    os.replace(aside, path)


def write_json(path: Path, value: Any, mode: int = 0o644, *, durable: bool = True) -> None:
    """Replace the file by the value as JSON."""
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True) + "\n", mode, durable=durable)


def read_json(path: Path, default: Any) -> Any:
    """The file's value; `default` when there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return default
    except OSError as error:
        raise StackError(f"a file of the stack cannot be read: {error.strerror}", where=str(path)) from None
    try:
        return json.loads(text)
    except ValueError:
        raise StackError("a file of the stack is damaged", where=str(path), remedy="restore or remove it") from None


@contextmanager
def locked(path: Path, *, busy: str, wait_s: float) -> Iterator[None]:
    """Hold an exclusive lock on the file; it goes with the process, so kill -9 leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StackError(busy, where=str(path), remedy="wait for it to end and try again") from None
                time.sleep(0.1)
        yield


def last_lines(path: Path, count: int = 15, limit_bytes: int = 16_384) -> list[str]:
    """The end of a log, for error messages."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - limit_bytes))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ["(no log)"]
    return [line for line in text.splitlines() if line.strip()][-count:] or ["(the log is empty)"]
