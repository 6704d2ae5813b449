"""The `alerts` command line. Each command is a module of `stack.commands`, imported only when it is the one to run."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence

import typer

from stack.errors import StackError
from stack.progress import console

# name → one line of help. A module has either `app` (a typer.Typer with sub-commands) or `command` (a function).
COMMANDS: dict[str, str] = {
    "demo": "The whole path on thirteen years of real stock prices.",
    "up": "Start the embedded stack; data is kept between runs.",
    "down": "Stop it in order, the jobs with a savepoint.",
    "status": "What runs, the topics' lag, memory, pages.",
    "replay": "Run a scenario file in process or through the whole stack.",
    "test": "Run every test that CI runs.",
    "bench": "Measure a part or the whole; figures as JSON.",
    "simulate": "Seeded worlds of the whole product under faults, against the oracle.",
    "admin": "Keys, instruments, splits, routing.",
    "reshard": "Move a hot symbol into shards of its own while all goes on.",
    "rebuild": "Make the matcher's index what the table says, while all goes on.",
    "verify": "Compare the matcher's index with the table, and mend it.",
}
_INTERRUPTED = 130


def build_app(chosen: str | None) -> typer.Typer:
    """The application with one real command; the others are stubs that only carry their help."""
    app = typer.Typer(
        name="alerts", help="Real-time price alerts on Kafka, Flink and Postgres.", no_args_is_help=True,
        add_completion=False, pretty_exceptions_enable=False,
    )  # fmt: skip

    @app.callback()
    def alerts() -> None:
        """Real-time price alerts on Kafka, Flink and Postgres."""

    for name, summary in COMMANDS.items():
        module_name = f"stack.commands.{name}"
        if importlib.util.find_spec(module_name) is None:
            continue
        if name != chosen:
            app.command(name, help=summary)(_stub)
            continue
        module = importlib.import_module(module_name)
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, help=summary)
        else:
            context = getattr(module, "CONTEXT_SETTINGS", None)
            app.command(name, help=summary, context_settings=context)(module.command)
    return app


def _stub() -> None:
    """Never run: the chosen command is a real one."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; a fault that a person can act on is one sentence on stderr and exit code 1."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    chosen = next((word for word in words if not word.startswith("-")), None)
    try:
        build_app(chosen)(words, prog_name="./alerts")
    except StackError as error:
        console.print(f"alerts: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
