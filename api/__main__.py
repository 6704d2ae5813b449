"""`python -m api`: the API as a service."""

from __future__ import annotations

import sys

from api.server import serve
from api.settings import ApiSettings
from ports.logging import configure_logging
from ports.secrets import SecretKeyError
from ports.settings import SettingsError, load_settings


def main() -> int:
    try:
        settings = load_settings(ApiSettings)
        configure_logging(settings.log_level, "api")
        serve(settings)
    except (SettingsError, SecretKeyError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
