"""What is going on, on stderr: a spinner on a terminal, plain lines elsewhere. stdout is for results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

# no file: the stderr of the moment, which tests replace
console = Console(stderr=True)


def say(message: str) -> None:
    """One line of progress."""
    console.print(message, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """A step that takes a while: shows that it runs, then how long it took."""
    started = time.monotonic()
    if console.is_terminal:
        with console.status(title):
            yield
    else:
        say(f"{title} …")
        yield
    say(f"{title}: {time.monotonic() - started:.1f} s")
