"""The operator's ALERTS_… variables that are the services' own: mail server, sources, keys. Kept in the home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from api.settings import ApiSettings
from feeds.archive.settings import ArchiveSettings
from feeds.settings import GatewaySettings
from feeds.sources.secret_references import PREFIX as SOURCE_SECRETS
from finalizer.settings import NotifierSettings, SweeperSettings

PREFIX: Final = "ALERTS_"
# The stack itself decides these for every program.
OWN: Final = frozenset(
    {"kafka", "postgres_dsn", "postgres_schema", "topic_prefix", "log_level", "health_file", "api_host", "api_port"}
)


def service_variables(stored: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """What services get beside their addresses: as given now, else as stored before; given empty is unset."""
    names = {
        f"{PREFIX}{field.upper()}"
        for settings in (ApiSettings, ArchiveSettings, GatewaySettings, NotifierSettings, SweeperSettings)
        for field in settings.model_fields
        if field not in OWN
    }
    names |= {name for name in (*stored, *environ) if name.startswith(SOURCE_SECRETS)}
    known = {name: value for name, value in stored.items() if name in names}
    known.update({name: environ[name] for name in names if name in environ})
    return {name: value for name, value in known.items() if value}
