"""`./alerts up`."""

from __future__ import annotations

import os

from stack.embedded import EmbeddedStack
from stack.environment import MAIN, Environment
from stack.operator_settings import service_variables
from stack.progress import say, step


def command() -> None:
    """Start the embedded stack and its main environment; continues from what is on disk."""
    stack = EmbeddedStack()
    stack.up()
    settings = stack.settings
    known = {environment.name: environment for environment in stack.environments()}
    stored = known.pop(MAIN).env if MAIN in known else {}
    env = service_variables(stored, os.environ)
    main = Environment(MAIN, settings.topic_prefix, settings.postgres_schema, env=env)
    others = known.values()
    for environment in (main, *others):
        with step(f"starting the environment {environment.name}"):
            missing = stack.create_environment(environment)
            if missing:
                say(f"not in this checkout, left out: {', '.join(missing)}")
            stack.await_environment(environment)
    say(f"Flink: {stack.flink_rest_url}")
    say(f"API:   {stack.api_url()}")
