"""Mail through the operator's SMTP server."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ValidationError

from contracts.trigger import WebhookEvent
from finalizer.channels.mail_session import SmtpSession
from finalizer.channels.mail_text import compose_mail
from finalizer.channels.outcome import MAX_SEND_SECONDS, Delivery, Outcome, dead, delivered, retry

SMTP_SECONDS: Final = 10.0  # for each exchange with the server
SESSION_SECONDS: Final = MAX_SEND_SECONDS  # for all of a mail, from the name lookup to the goodbye
NOT_CONFIGURED: Final = "not configured: this installation sends no mail (ALERTS_SMTP_HOST is not set)"


@dataclass(frozen=True, slots=True)
class MailServer:
    """Where mail is handed in. `security`: none, starttls, or tls from the first byte."""

    host: str
    port: int
    sender: str
    security: Literal["none", "starttls", "tls"] = "starttls"
    username: str | None = None
    password: str | None = None


def connect(server: MailServer, total_seconds: float = SESSION_SECONDS) -> smtplib.SMTP:
    """A session, logged in, that ends after `total_seconds`. Raises smtplib.SMTPException, OSError."""
    session = SmtpSession(
        server.host,
        server.port,
        exchange_seconds=SMTP_SECONDS,
        total_seconds=total_seconds,
        tls=ssl.create_default_context() if server.security == "tls" else None,
    )
    try:
        if server.security == "starttls":
            session.starttls(context=ssl.create_default_context())
        if server.username is not None:
            session.login(server.username, server.password or "")
    except BaseException:
        session.close()
        raise
    return session


class MailChannel:
    """Channel. Without a server every mail is a visible permanent failure, never "delivered"."""

    def __init__(self, server: MailServer | None, open_session: Callable[[MailServer], smtplib.SMTP] = connect) -> None:
        self._server, self._open = server, open_session

    def send(self, delivery: Delivery) -> Outcome:
        if self._server is None:
            return dead(NOT_CONFIGURED)
        try:
            message = WebhookEvent.model_validate_json(delivery.body).data
            mail = compose_mail(message, self._server.sender, delivery.address, delivery.delivery_id)
        except ValidationError:
            return dead("the stored message can't be read")
        except ValueError:
            return dead("the mail address is not valid")
        try:
            session = self._open(self._server)
        except (smtplib.SMTPException, OSError) as error:
            return retry(f"mail server: {_words(error)}")  # also a wrong password: the operator can put it right
        try:
            session.send_message(mail, to_addrs=[delivery.address])
            accepted = delivered()
        except smtplib.SMTPException as error:
            accepted = _judge(error)
        except OSError as error:
            accepted = retry(f"mail server: {_words(error)}")
        try:
            session.quit()
        except (smtplib.SMTPException, OSError):
            session.close()  # what it said about the mail stands
        return accepted


def _judge(error: smtplib.SMTPException) -> Outcome:
    """4xx is for now, 5xx for good; no code: the connection broke, the mail may or may not have gone."""
    code: int | None = None
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code = next(iter(error.recipients.values()))[0]
    elif isinstance(error, smtplib.SMTPResponseException):
        code = error.smtp_code
    elif isinstance(error, smtplib.SMTPNotSupportedError):
        return dead("the mail server does not take such an address (SMTPUTF8)")
    if code is not None and 500 <= code < 600:
        return dead(f"mail server: {_words(error)}")
    return retry(f"mail server: {_words(error)}")


def _words(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, text = next(iter(error.recipients.values()))
        return f"{code} {_text(text)}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {_text(error.smtp_error)}"
    return f"{type(error).__name__}: {error}"[:300]


def _text(answer: bytes | str) -> str:
    return (answer.decode(errors="replace") if isinstance(answer, bytes) else answer)[:300]
