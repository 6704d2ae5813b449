"""`./alerts up`."""

from __future__ import annotations

from stack.embedded import EmbeddedStack
from stack.environment import MAIN, Environment
from stack.progress import say, step


def command() -> None:
    """Start the embedded stack and its main environment; continues from what is on disk."""
    stack = EmbeddedStack()
    stack.up()
    settings = stack.settings
    main = Environment(MAIN, settings.topic_prefix, settings.postgres_schema)
    others = [environment for environment in stack.environments() if environment.name != MAIN]
    for environment in (main, *others):
        with step(f"starting the environment {environment.name}"):
            missing = stack.create_environment(environment)
            if missing:
                say(f"not in this checkout, left out: {', '.join(missing)}")
            stack.await_environment(environment)
    say(f"Flink: {stack.flink_rest_url}")
    say(f"API:   {stack.api_url()}")
