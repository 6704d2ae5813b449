"""`./alerts test`."""

from __future__ import annotations

import os
import sys

import typer

from stack.jars import prepare_jars
from stack.settings import REPOSITORY

# Everything behind `test` is pytest's.
CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def command(context: typer.Context) -> None:
    """Run the tests; arguments go to pytest, its summary is the last line and its exit code is ours."""
    prepare_jars()
    arguments = context.args
    paths = [argument for argument in arguments if (REPOSITORY / argument.split("::")[0]).exists()]
    os.chdir(REPOSITORY)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(  # noqa: S606 - pytest becomes this process, so its last line and its exit code are ours
        sys.executable, [sys.executable, "-m", "pytest", *([] if paths else ["tests"]), *arguments]
    )
