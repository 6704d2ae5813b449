"""One file a command. Each has `command`, a function, or `app`, a typer.Typer; see `stack.cli.COMMANDS`."""
