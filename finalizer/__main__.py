"""`python -m finalizer consumer | rule-relay | sweeper | shard-upkeep | trigger-relay | notifier`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from finalizer import assembly
from finalizer.settings import NotifierSettings, SweeperSettings
from ports.clock import Clock
from ports.logging import configure_logging
from ports.secrets import SecretKeyError
from ports.service import Service, run_service
from ports.settings import ServiceSettings, SettingsError, load_settings

S = TypeVar("S", bound=ServiceSettings)
Opened = tuple[ServiceSettings, Callable[[Clock], Service]]


def _with(settings: type[S], assemble: Callable[[S], Callable[[Clock], Service]]) -> Callable[[], Opened]:
    def load() -> Opened:
        loaded = load_settings(settings)
        return loaded, assemble(loaded)

    return load


SERVICES = {  # name -> (how it is opened, first and longest rest between idle steps in seconds); a log rests its reader
    "consumer": (_with(ServiceSettings, assembly.consumer), (0.0, 0.0)),
    "rule-relay": (_with(ServiceSettings, assembly.rule_relay), (0.01, 0.08)),
    "sweeper": (_with(SweeperSettings, assembly.sweeper), (0.1, 0.2)),
    "shard-upkeep": (_with(ServiceSettings, assembly.shard_upkeep), (0.05, 0.5)),
    "trigger-relay": (_with(ServiceSettings, assembly.trigger_relay), (0.01, 0.08)),
    "notifier": (_with(NotifierSettings, assembly.notifier), (0.0, 0.0)),
}


def main(arguments: list[str]) -> int:
    """Run one service until it is told to stop; 2 when it can't start as it was asked to."""
    name = arguments[0] if len(arguments) == 1 else ""
    if name not in SERVICES:
        sys.stderr.write(f"usage: python -m finalizer {' | '.join(SERVICES)}\n")
        return 2
    load, rests = SERVICES[name]
    try:
        settings, open_service = load()
    except (SettingsError, SecretKeyError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure_logging(settings.log_level, name)
    run_service(open_service, settings.health_file, assembly.PASSING_ERRORS, *rests)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
