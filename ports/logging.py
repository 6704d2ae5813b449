"""Structured logs on stderr: one JSON object a line, secrets masked by name."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog

SECRET_NAMES: Final = ("secret", "password", "token", "api_key", "authorization", "dsn")


def _mask(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name in event:
        if any(secret in name.lower() for secret in SECRET_NAMES):
            event[name] = "***"
    return event


def configure_logging(level: str, service: str) -> None:
    """Once, at a process's start."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _mask,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(service=service)
