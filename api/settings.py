"""Settings of the API, from ALERTS_… variables."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

MAX_BODY_BYTES: Final = 64 * 1024
MAX_WAIT_SECONDS: Final = 60.0
KEY_CACHE_SECONDS: Final = 2.0  # a revoked key works this long at most
KEY_CACHE_SIZE: Final = 10_000
POST_TIMEOUT_MS: Final = 10_000  # Kafka's, for prices that were posted


class ApiSettings(BaseSettings):
    """The API reads and writes Postgres; it needs Kafka for POST /v1/admin/ticks alone."""

    model_config = SettingsConfigDict(env_prefix="ALERTS_", extra="ignore")

    postgres_dsn: str = Field(description="libpq connection string or URL")
    postgres_schema: str = Field(default="alerts", pattern=r"^[a-z_][a-z0-9_]{0,40}$")
    kafka: str | None = Field(default=None, description="bootstrap servers; without them prices can't be posted")
    topic_prefix: str = Field(default="", pattern=r"^[a-zA-Z0-9._-]{0,60}$")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    health_file: Path | None = Field(default=None, description="JSON heartbeat that `alerts status` reads")
    archive_folder: Path | None = Field(
        default=None,
        description="price archive, read-only; without it evidence is checked by itself alone",
    )
    secret_key: str | None = Field(
        default=None, description="encrypts webhook secrets; without it there are no webhooks"
    )
    api_host: str = "127.0.0.1"
    api_port: int = Field(default=8400, ge=1, le=65535)
    api_pool_size: int = Field(default=12, ge=1, le=200, description="connections to Postgres")
    api_statement_timeout_ms: int = Field(default=5_000, ge=100, le=60_000)
    market_clock_bound_ms: int = Field(
        default=300_000,
        ge=0,
        description="how far the market clock of a live feed may be ahead of its finalized frontier",
    )
