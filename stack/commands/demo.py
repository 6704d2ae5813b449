"""`./alerts demo`."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import orjson
import typer

from stack.demo.programs import choose_receivers, start_receivers
from stack.demo.run import Demo, show_result
from stack.embedded import EmbeddedStack
from stack.progress import say
from stack.replay.own_environment import own_environment

DEADLINE_S = 300.0


def command(
    leave: Annotated[
        bool, typer.Option("--exit", help="Stop everything at the end; the last line on stdout is JSON.")
    ] = False,
    kill_each: Annotated[
        bool, typer.Option("--kill-each", hidden=True, help="kill -9 each process in turn during the replay.")
    ] = False,
) -> None:
    """Thirteen years of stock prices, alerts through the API, mail and webhooks that arrive, checked by the oracle."""
    stack = EmbeddedStack()
    stack.home.prepare()
    receivers = choose_receivers(stack)
    with own_environment("demo", env=receivers.service_env(), stack=stack, deadline_s=DEADLINE_S) as own:
        start_receivers(own, receivers)
        result = Demo(own, receivers, kill_each).run()
        show_result(result)
        if not leave:
            _stay(own.api_url, own.new_owner_key("ada", "alerts"), receivers.mailbox_url)
    if leave:
        sys.stdout.write(orjson.dumps(result.as_json()).decode() + "\n")
    raise typer.Exit(0 if result.is_good else 1)


def _stay(api_url: str, key: str, mailbox_url: str) -> None:
    """Until Ctrl-C."""
    say(f"Web page: {api_url}/   API key of ada: {key}")
    say(f"Mailbox:  {mailbox_url}/")
    say("Ctrl-C ends the demo and stops what it started.")
    try:
        signal.pause()
    except KeyboardInterrupt:
        say("stopping")
