"""`python -m finalizer consumer | rule-relay | sweeper | shard-upkeep | trigger-relay | notifier`."""

from __future__ import annotations

import sys

from finalizer import assembly
from finalizer.settings import NotifierSettings
from ports.logging import configure_logging
from ports.secrets import SecretKeyError
from ports.service import run_service
from ports.settings import ServiceSettings, SettingsError, load_settings

SERVICES = {  # name -> (how it is opened, first and longest rest between idle steps in seconds); a log rests its reader
    "consumer": (assembly.consumer, (0.0, 0.0)),
    "rule-relay": (assembly.rule_relay, (0.01, 0.08)),
    "sweeper": (assembly.sweeper, (0.1, 0.2)),
    "shard-upkeep": (assembly.shard_upkeep, (0.05, 0.5)),
    "trigger-relay": (assembly.trigger_relay, (0.01, 0.08)),
}


def main(arguments: list[str]) -> int:
    """Run one service until it is told to stop; 2 when it can't start as it was asked to."""
    name = arguments[0] if len(arguments) == 1 else ""
    try:
        if name == "notifier":
            settings: ServiceSettings = load_settings(NotifierSettings)
            assert isinstance(settings, NotifierSettings)
            open_service, rests = assembly.notifier(settings), (0.0, 0.0)
        elif name in SERVICES:
            settings = load_settings(ServiceSettings)
            assemble, rests = SERVICES[name]
            open_service = assemble(settings)
        else:
            sys.stderr.write(f"usage: python -m finalizer {' | '.join([*SERVICES, 'notifier'])}\n")
            return 2
    except (SettingsError, SecretKeyError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure_logging(settings.log_level, name)
    run_service(open_service, settings.health_file, assembly.PASSING_ERRORS, *rests)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
