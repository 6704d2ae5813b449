"""The demo's mailbox: takes mail over SMTP, keeps it as a Maildir, shows it as a page. Sends nothing anywhere.

Run as `python -m stack.demo.mailbox`, set by ALERTS_DEMO_… variables.
"""

from __future__ import annotations

import asyncio
import mailbox
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.utils import getaddresses
from html import escape
from pathlib import Path
from typing import Final

import uvicorn
from aiosmtpd.smtp import SMTP, Envelope, Session
from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from ports.settings import load_settings
from stack.demo.heartbeat import telling_health

MAX_MESSAGE_BYTES: Final = 1 << 20
PAGE_MESSAGES: Final = 200
_ARRIVAL: Final = re.compile(r"(\d+)\.M(\d+)")


class MailboxSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="ALERTS_DEMO_", extra="ignore")

    host: str = "127.0.0.1"
    smtp_port: int
    page_port: int
    folder: Path
    health_file: Path | None = Field(default=None, validation_alias="ALERTS_HEALTH_FILE")


@dataclass(frozen=True)
class Mail:
    """What the page and the demo's count need of a message."""

    key: str
    message_id: str
    recipients: tuple[str, ...]
    subject: str
    text: str


class MailboxStore:
    """A Maildir: a message is there as a whole or not at all, also after kill -9."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # mailbox.Maildir makes the folder before its parts: of two first messages one would find no tmp
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in ("tmp", "new", "cur"):
            (folder / part).mkdir(mode=0o700, exist_ok=True)

    def add(self, content: bytes, recipients: Sequence[str]) -> None:
        """Durable when this returns, so it may be acknowledged. The envelope's recipients are kept with it."""
        head = "".join(f"X-Envelope-To: {address}\r\n" for address in recipients).encode()
        box = self._open()
        box.add(head + content)
        box.flush()

    def read_all(self) -> list[Mail]:
        """Every message, in the order of its arrival."""
        box = self._open()
        return [self._read(key, box.get_bytes(key)) for key in sorted(box.keys(), key=_arrival)]

    def read(self, key: str) -> Mail | None:
        box = self._open()
        return self._read(key, box.get_bytes(key)) if key in box else None

    def _open(self) -> mailbox.Maildir:
        return mailbox.Maildir(self._folder, create=False)

    @staticmethod
    def _read(key: str, content: bytes) -> Mail:
        message = message_from_bytes(content, policy=policy.default)
        body = message.get_body(("plain", "html"))
        return Mail(
            key=key,
            message_id=str(message.get("Message-ID", "")).strip(),
            recipients=tuple(address for _, address in getaddresses(message.get_all("X-Envelope-To", []))),
            subject=str(message.get("Subject", "")),
            text=body.get_content() if body is not None else "",
        )


def _arrival(key: str) -> tuple[int, int, str]:
    """A Maildir key begins with the second and the microsecond of its arrival: 1700000000.M12P…"""
    found = _ARRIVAL.match(key)
    return (int(found[1]), int(found[2]), key) if found else (0, 0, key)


class _Handler:
    def __init__(self, store: MailboxStore) -> None:
        self._store = store

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802  (aiosmtpd's name)
        content = envelope.content
        assert isinstance(content, bytes)
        await asyncio.to_thread(self._store.add, content, tuple(envelope.rcpt_tos))
        return "250 kept"


def mailbox_page(store: MailboxStore) -> FastAPI:
    """`/` shows the newest messages, `/messages` all of them as JSON, `/messages/{key}` one."""
    page = FastAPI(title="Demo mailbox", docs_url=None, redoc_url=None)

    @page.get("/", response_class=HTMLResponse)
    def show_messages() -> str:
        mails = store.read_all()
        rows = "".join(
            f"<tr><td>{escape(', '.join(mail.recipients))}</td><td><a href='/messages/{escape(mail.key)}'>"
            f"{escape(mail.subject)}</a></td></tr>"
            for mail in reversed(mails[-PAGE_MESSAGES:])
        )
        return _page(f"{len(mails)} messages", f"<table><tr><th>To</th><th>Subject</th></tr>{rows}</table>")

    @page.get("/messages")
    def list_messages() -> JSONResponse:
        return JSONResponse(
            [
                {"message_id": mail.message_id, "to": mail.recipients, "subject": mail.subject}
                for mail in store.read_all()
            ]
        )

    @page.get("/messages/{key}", response_class=HTMLResponse)
    def show_message(key: str) -> str:
        mail = store.read(key)
        if mail is None:
            raise HTTPException(404, "no such message")
        return _page(mail.subject, f"<p>To: {escape(', '.join(mail.recipients))}</p><pre>{escape(mail.text)}</pre>")

    return page


def _page(title: str, body: str) -> str:
    return (
        f"<!doctype html><meta charset='utf-8'><title>{escape(title)}</title>"
        "<style>body{font:16px system-ui;margin:2rem;max-width:60rem}td,th{padding:.3rem .8rem;text-align:left}"
        f"pre{{white-space:pre-wrap}}</style><h1>{escape(title)}</h1>{body}"
    )


async def serve(settings: MailboxSettings) -> None:
    """Until SIGTERM."""
    store = MailboxStore(settings.folder)
    loop = asyncio.get_running_loop()
    smtp = await loop.create_server(
        lambda: SMTP(_Handler(store), data_size_limit=MAX_MESSAGE_BYTES, hostname="demo", loop=loop),
        settings.host, settings.smtp_port,
    )  # fmt: skip
    async with smtp, telling_health(settings.health_file):
        await uvicorn.Server(
            uvicorn.Config(mailbox_page(store), host=settings.host, port=settings.page_port, log_level="warning")
        ).serve()


if __name__ == "__main__":
    asyncio.run(serve(load_settings(MailboxSettings)))
