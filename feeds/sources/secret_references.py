"""Secrets of sources: settings in Postgres say `${NAME}`, the gateway's variable ALERTS_SOURCE_NAME is the value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from feeds.sources.source import SourceError

PREFIX: Final = "ALERTS_SOURCE_"
_REFERENCE: Final = re.compile(r"\$\{([A-Z][A-Z0-9_]{0,60})\}", re.ASCII)
_SECRET_NAMES: Final = (
    "secret",
    "password",
    "passwd",
    "token",
    "api_key",
    "apikey",
    "api-key",
    "authorization",
    "passphrase",
)


def source_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Name without the prefix -> value."""
    return {name.removeprefix(PREFIX): value for name, value in environ.items() if name.startswith(PREFIX)}


def resolve(value: Any, secrets: Mapping[str, str]) -> Any:
    """The same value with every reference in its texts replaced. Raises SourceError when one has no variable."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: _secret(match[1], secrets), value)
    if isinstance(value, Mapping):
        return {name: resolve(part, secrets) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [resolve(part, secrets) for part in value]
    return value


def check_references(value: Any, where: str = "source") -> None:
    """Refuse what looks like a secret written out: settings are stored and shown. Raises SourceError."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            _check_named(str(name), part, f"{where}.{name}")
            check_references(part, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            check_references(part, f"{where}.{index}")
    elif isinstance(value, str) and "://" in value:
        try:
            parts = urlsplit(value)
            named = parse_qsl(parts.query)
        except ValueError:
            raise SourceError(f"{where}: no URL") from None
        if parts.username or parts.password:
            raise SourceError(f"{where}: a URL with a password in it; send it in headers, as ${{NAME}}")
        for name, part in named:
            _check_named(name, part, f"{where}?{name}")


def _check_named(name: str, value: object, where: str) -> None:
    plain = name.lower()
    if isinstance(value, str) and value and any(secret in plain for secret in _SECRET_NAMES) and "${" not in value:
        raise SourceError(f"{where}: write ${{NAME}} and set the variable {PREFIX}NAME; secrets are not stored here")


def _secret(name: str, secrets: Mapping[str, str]) -> str:
    if not secrets.get(name):
        raise SourceError(f"the source's settings name ${{{name}}}: set the variable {PREFIX}{name} and start again")
    return secrets[name]
