"""Whether a service is well: it says so itself, in a file, every second or two."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.errors import ComponentDiedError, StackError
from stack.files import last_lines, read_json
from stack.home import Home
from stack.supervision import Supervisor

STALE_AFTER_MS = 10_000
_POLL_S = 0.2


@dataclass(frozen=True)
class Health:
    """What a service's file says, and how old that is."""

    ok: bool
    reason: str


def read_health(path: Path, now_ms: int) -> Health:
    """Not ok when the file is missing, stale or says so."""
    try:
        stored = read_json(path, None)
    except StackError:
        return Health(False, "unreadable health file")
    if stored is None:
        return Health(False, "has not reported yet")
    age_ms = now_ms - int(stored.get("at_ms", 0))
    if age_ms > STALE_AFTER_MS:
        return Health(False, f"silent for {age_ms // 1000} s")
    if not stored.get("ok"):
        return Health(False, str(stored.get("detail") or "reports a fault"))
    return Health(True, "ok")


def read_detail(path: Path) -> dict[str, Any]:
    """What a service told last of itself; empty when it told nothing that can be read."""
    try:
        detail = read_json(path, {}).get("detail")
    except StackError:
        return {}
    return detail if isinstance(detail, dict) else {}


def await_healthy(home: Home, supervisor: Supervisor, names: list[str], timeout_s: float) -> None:
    """Wait for all of them; the first that keeps dying or stays unwell is named, with the end of its log."""
    deadline = time.monotonic() + timeout_s
    for name in names:
        log = home.logs / f"{name}.log"
        while True:
            health = read_health(home.health / f"{name}.json", time.time_ns() // 1_000_000)
            state = supervisor.states().get(name)
            if health.ok and state is not None and state.is_running:
                break
            if state is not None and state.is_given_up:
                raise ComponentDiedError(name, str(log), last_lines(log))
            if time.monotonic() > deadline:
                raise StackError(
                    f"{name} is not well: {health.reason}", where=f"log {log}", remedy="\n".join(last_lines(log))
                )
            time.sleep(_POLL_S)
