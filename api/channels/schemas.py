"""Channels on the wire."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from email_validator import EmailNotValidError, validate_email
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictStr

from api.texts import check_line
from api.times import TimeText

MAX_ADDRESS_LENGTH: Final = 320
MAX_URL_LENGTH: Final = 2_000


def check_address(text: str) -> str:
    """A mail address in its normal form. Whether anybody reads there shows when something is sent."""
    try:
        return validate_email(check_line(text), check_deliverability=False).normalized
    except EmailNotValidError as error:
        raise ValueError(f"not a mail address: {error}") from None


def check_url(text: str) -> str:
    """An http(s) URL that can be called; where its name leads is checked each time something is sent."""
    check_line(text)
    if not text.isascii() or any(c.isspace() or c in '"<>\\^`{|}' for c in text):
        raise ValueError("a URL is written in ASCII; other characters are percent-encoded")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a webhook is an http or https URL with a host")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("a webhook URL has no user, password or fragment")
    if port == 0:
        raise ValueError("a webhook URL's port is 1 to 65535")
    return text


class NewEmailChannel(BaseModel):
    """Mail to an address."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "email", "address": "ada@example.org"}]})

    kind: Literal["email"]
    address: Annotated[StrictStr, Field(max_length=MAX_ADDRESS_LENGTH), AfterValidator(check_address)]


class NewWebhookChannel(BaseModel):
    """A POST to a URL, signed by the Standard Webhooks scheme."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "webhook", "url": "https://example.org/alerts"}]}
    )

    kind: Literal["webhook"]
    url: Annotated[StrictStr, Field(max_length=MAX_URL_LENGTH), AfterValidator(check_url)]


NewChannelRequest = Annotated[NewEmailChannel | NewWebhookChannel, Field(discriminator="kind")]


class ChannelView(BaseModel):
    """A channel. `address` is the mail address or the URL."""

    channel_id: int
    kind: Literal["email", "webhook"]
    address: str
    created_at: TimeText


class NewChannelView(ChannelView):
    """A new channel."""

    secret: str | None = Field(description="signs a webhook's messages (whsec_…); shown this once", default=None)


class ChannelList(BaseModel):
    channels: list[ChannelView]
