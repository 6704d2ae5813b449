"""Settings of the embedded stack, from ALERTS_… variables; a wrong one is named in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import psutil
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from stack.errors import StackError

REPOSITORY = Path(__file__).resolve().parent.parent


class StackSettings(BaseSettings):
    """Everything that can be set from outside. Unset ports are chosen and kept in the home."""

    model_config = SettingsConfigDict(env_prefix="ALERTS_", extra="ignore")

    home: Path = REPOSITORY / ".alerts"
    kafka: str | None = Field(default=None, description="bootstrap servers of an existing broker")
    postgres_dsn: str | None = Field(default=None, description="an existing database")
    postgres_schema: str = "alerts"
    topic_prefix: str = ""
    api_port: int | None = Field(default=None, ge=1, le=65535)
    flink_port: int | None = Field(default=None, ge=1, le=65535)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    checkpoint_interval_ms: int = Field(default=5_000, ge=500)
    task_slots: int = Field(default=8, ge=1)
    bundle_size: int = Field(default=1_000, ge=1)
    bundle_time_ms: int = Field(default=3, ge=1)
    kafka_heap_mib: int = Field(default=768, ge=256)
    jobmanager_mib: int = Field(default=1_024, ge=768)
    taskmanager_mib: int = Field(default=3_072, ge=1_536)
    rocksdb_mib: int = Field(default=1_024, ge=64)
    postgres_shared_buffers_mib: int = Field(
        default_factory=lambda: default_shared_buffers_mib(psutil.virtual_memory().total), ge=16
    )
    postgres_max_wal_mib: int = Field(default=8_192, ge=128)
    start_timeout_s: float = Field(default=300.0, gt=0)

    @field_validator("home")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("kafka", "postgres_dsn")
    @classmethod
    def _empty_is_unset(cls, value: str | None) -> str | None:
        return value or None


def default_shared_buffers_mib(total_bytes: int) -> int:
    """A twelfth of the machine, for Postgres shares it with Kafka, Flink and the services."""
    return max(128, min(2_048, total_bytes // 2**20 // 12))


def load_settings() -> StackSettings:
    """The settings, or one sentence that names the variable at fault."""
    try:
        return StackSettings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "ALERTS_" + "_".join(str(part) for part in first["loc"]).upper()
        raise StackError(f"{name} is not usable: {first['msg']}", remedy="correct or unset it") from None
