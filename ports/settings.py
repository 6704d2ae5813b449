"""Settings that every service shares, from the environment (ALERTS_…), read once at the edge."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """What a service needs to find its environment. Services subclass it for their own settings."""

    model_config = SettingsConfigDict(env_prefix="ALERTS_", extra="ignore")

    kafka: str = Field(description="bootstrap servers, host:port[,host:port]")
    postgres_dsn: str = Field(description="libpq connection string or URL")
    postgres_schema: str = Field(default="alerts", pattern=r"^[a-z_][a-z0-9_]{0,40}$")
    topic_prefix: str = Field(default="", pattern=r"^[a-zA-Z0-9._-]{0,60}$")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    health_file: Path | None = Field(default=None, description="JSON heartbeat that `alerts status` reads")


S = TypeVar("S", bound=BaseSettings)


class SettingsError(Exception):
    """One sentence a setting: its environment name, what is wrong."""


def load_settings(cls: type[S]) -> S:
    """Read settings; raises SettingsError that names each wrong variable, never its value."""
    try:
        return cls()
    except ValidationError as error:
        prefix = str(cls.model_config.get("env_prefix", ""))
        lines = [f"{prefix}{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors()]
        raise SettingsError("wrong environment: " + "; ".join(lines)) from None
