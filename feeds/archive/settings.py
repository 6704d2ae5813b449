"""The archive's settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from ports.settings import ServiceSettings


class ArchiveSettings(ServiceSettings):
    """ALERTS_… of `python -m feeds.archive`."""

    archive_folder: Path = Field(description="where the Parquet files are; one environment's alone")
    archive_roll_seconds: float = Field(default=60.0, ge=0.1, le=3_600, description="how often files are written")
    archive_retention_days: int = Field(default=0, ge=0, description="older days are deleted, by event time; 0: none")
