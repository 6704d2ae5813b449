"""Settings of the finalizer's services, from the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from finalizer.retry_schedule import DEFAULT_RETRY_SECONDS
from ports.settings import ServiceSettings

MAX_TRIES = 50
MAX_REST_SECONDS = 7 * 86_400.0


class SweeperSettings(ServiceSettings):
    """How long rows stay that nobody needs any more."""

    retention_alert_days: float | None = Field(
        default=None, ge=1, description="days after an alert's end until it is dropped; unset: it stays"
    )
    retention_command_days: float | None = Field(
        default=7, ge=1, description="days after a rule command's publication until it is dropped; `none`: it stays"
    )
    retention_folder: Path | None = Field(
        default=None, description="ended alerts are written here before they are dropped; unset: they are gone"
    )

    @field_validator("retention_alert_days", "retention_command_days", mode="before")
    @classmethod
    def _read_none(cls, given: object) -> object:
        return None if given in ("", "none") else given


class NotifierSettings(ServiceSettings):
    """What sending needs. Without smtp_host no mail goes out, and each says so in its delivery row."""

    secret_key: SecretStr = Field(description="comma-separated Fernet keys; the first seals webhook secrets")
    smtp_host: str | None = None
    smtp_port: int = Field(default=587, ge=1, le=65_535)
    smtp_security: Literal["none", "starttls", "tls"] = "starttls"
    smtp_username: str | None = None
    smtp_password: SecretStr | None = None
    mail_from: str = "alerts@localhost"
    webhook_allow_private: bool = Field(default=False, description="self-hosters: also private addresses, plain http")
    retry_seconds: Annotated[str, Field(description="rests between tries, comma-separated seconds")] = ",".join(
        f"{seconds:g}" for seconds in DEFAULT_RETRY_SECONDS
    )

    @field_validator("retry_seconds")
    @classmethod
    def _check_schedule(cls, text: str) -> str:
        try:
            rests = [float(part) for part in text.split(",")]
        except ValueError:
            raise ValueError("must be numbers of seconds, comma-separated") from None
        if len(rests) > MAX_TRIES or any(not 0 <= rest <= MAX_REST_SECONDS for rest in rests):
            raise ValueError(f"at most {MAX_TRIES} rests, each 0 to {MAX_REST_SECONDS:.0f} s")
        return text

    @property
    def schedule(self) -> tuple[float, ...]:
        return tuple(float(part) for part in self.retry_seconds.split(","))
