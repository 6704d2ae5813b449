"""What the demo's mailbox and receiver acknowledge they have, once, and as it was sent."""

from __future__ import annotations

import asyncio
import json
import smtplib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path

import httpx
from aiosmtpd.smtp import SMTP
from fastapi import FastAPI
from standardwebhooks.webhooks import Webhook

from stack.demo.mailbox import MailboxStore, _Handler, mailbox_page
from stack.demo.receiver import ReceivedStore, receiver_app

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def _send(store: MailboxStore, send: Callable[[smtplib.SMTP], object]) -> None:
    """Run `send` on a client that is connected to a server of this store."""

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: SMTP(_Handler(store), hostname="test", loop=loop), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        def connect() -> None:
            with smtplib.SMTP("127.0.0.1", port) as client:
                send(client)

        async with server:
            await asyncio.to_thread(connect)

    asyncio.run(serve())


def _ask(app: FastAPI, method: str, path: str, **options: object) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://demo") as client:
            return await client.request(method, path, **options)

    return asyncio.run(ask())


def _mail(number: int, subject: str) -> EmailMessage:
    message = EmailMessage()
    message["Message-ID"] = f"<{number}@test>"
    message["Subject"] = subject
    message["From"], message["To"] = "alerts@example.com", "ada@example.com"
    message.set_content("AAPL crossed 5 %: 📈")
    return message


def test_mail_is_kept_and_shown_as_text(tmp_path: Path) -> None:
    store = MailboxStore(tmp_path / "mail")
    _send(store, lambda client: client.send_message(_mail(1, "📈 Über <script>")))
    (mail,) = MailboxStore(tmp_path / "mail").read_all()
    assert mail.message_id == "<1@test>"
    assert mail.recipients == ("ada@example.com",)
    assert mail.subject == "📈 Über <script>"
    assert "crossed 5 %: 📈" in mail.text
    page = mailbox_page(store)
    assert "&lt;script&gt;" in _ask(page, "GET", "/").text
    assert "crossed 5 %" in _ask(page, "GET", f"/messages/{mail.key}").text
    assert _ask(page, "GET", "/messages/../../etc/passwd").status_code == 404
    assert _ask(page, "GET", "/messages").json()[0]["to"] == ["ada@example.com"]


def test_mails_come_in_the_order_of_their_arrival(tmp_path: Path) -> None:
    store = MailboxStore(tmp_path / "mail")
    _send(store, lambda client: [client.send_message(_mail(number, f"n{number}")) for number in range(20)])
    assert [mail.subject for mail in store.read_all()] == [f"n{number}" for number in range(20)]


def test_the_first_mails_may_come_at_once(tmp_path: Path) -> None:
    for box in range(40):
        store = MailboxStore(tmp_path / f"mail{box}")
        with ThreadPoolExecutor(8) as pool:
            kept = [pool.submit(store.add, f"Subject: {number}\n\n".encode(), ["ada@x.example"]) for number in range(8)]
        for one in kept:
            one.result()
        assert len(store.read_all()) == 8


def _hook(tmp_path: Path) -> tuple[FastAPI, ReceivedStore]:
    secrets = tmp_path / "secrets.json"
    secrets.write_text(json.dumps({"ben": SECRET}))
    store = ReceivedStore(tmp_path / "received")
    return receiver_app(store, secrets), store


def _headers(body: str) -> dict[str, str]:
    now = datetime.now(tz=UTC)
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(SECRET).sign("msg_1", now, body),
    }


def test_a_signed_webhook_is_kept_once_however_often_it_comes(tmp_path: Path) -> None:
    app, store = _hook(tmp_path)
    body = '{"note": "é 📈", "price": "1.10"}'
    for _ in range(3):
        assert _ask(app, "POST", "/hooks/ben", content=body.encode(), headers=_headers(body)).status_code == 204
    (record,) = store.read_all()
    assert record == {
        "owner": "ben",
        "delivery_id": "msg_1",
        "times": 3,
        "body": {"note": "é 📈", "price": "1.10"},
    }
    assert _ask(app, "GET", "/received").json() == [record]


def test_a_changed_body_and_an_unknown_hook_are_refused(tmp_path: Path) -> None:
    app, store = _hook(tmp_path)
    assert _ask(app, "POST", "/hooks/ben", content=b'{"a": 2}', headers=_headers('{"a": 1}')).status_code == 401
    assert _ask(app, "POST", "/hooks/eve", content=b"{}", headers=_headers("{}")).status_code == 404
    assert store.read_all() == []
