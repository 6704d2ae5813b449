"""`./alerts down`."""

from __future__ import annotations

from stack.embedded import EmbeddedStack
from stack.progress import say


def command() -> None:
    """Stop feeds, then the jobs with a savepoint, then everything else; data stays."""
    stack = EmbeddedStack()
    if not stack.home.root.exists():
        say(f"nothing to stop: there is no {stack.home.root}")
        return
    stack.down()
    say("stopped")
