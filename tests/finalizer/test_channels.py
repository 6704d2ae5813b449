"""Mail and webhooks against real servers on this machine."""

from __future__ import annotations

import smtplib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as default_policy
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from api.alerts.evidence import summarize
from contracts.trigger import Evidence, TriggerMessage
from finalizer.channels.mail import SESSION_SECONDS, MailChannel, MailServer, connect
from finalizer.channels.mail_session import SmtpSession
from finalizer.channels.mail_text import compose_mail, lines_of, subject_of
from finalizer.channels.outcome import MAX_SEND_SECONDS, Delivery, Result
from finalizer.channels.webhook import TOTAL_SECONDS, WebhookChannel, retry_after_seconds
from finalizer.notifier import LEASE_MS, webhook_body
from ports.clock import SystemClock
from ports.secrets import SealedSecretError, SecretBox, SecretKeyError, new_key

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BOX = SecretBox(new_key())
EVIDENCE = {
    "event_time_ms": 1_700_000_000_123, "sequence": 1, "session": 1, "price": "1.1", "window": "1h", "fired": "UP",
    "epoch": 1, "position": 1, "version": 1, "active_from_event_time_ms": 1, "finalized_at_ms": 1_700_000_000_500,
    "reference_time_ms": 1, "reference_price": "1", "previous_bps": 1, "current_bps": 1000,
}  # fmt: skip


def message(note: str = "é 📈") -> TriggerMessage:
    return TriggerMessage.model_validate(
        {"trigger_id": "trg_1_0", "alert_id": 1, "owner_id": 1, "symbol": "AAA", "kind": "change", "window": "1h",
         "direction": "UP", "threshold_bps": 500, "target": None, "note": note, "created_at_ms": 1,
         "expires_at_ms": 2, "channel_ids": [1], "evidence": EVIDENCE}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fired", "reference", "price", "current_bps", "words"),
    [
        ("UP", "1", "1.1", 1000, "AAA rose 10% in 1 hour: 1.1"),
        ("DOWN", "100", "92.7349", -727, "AAA fell 7.26% in 1 hour: 92.7349"),  # cut towards zero, one sign: the verb
        ("DOWN", "100", "92.73", -727, "AAA fell 7.27% in 1 hour: 92.73"),
        ("UP", "100", "107.2699", 726, "AAA rose 7.26% in 1 hour: 107.2699"),
        # printed on two bases: of the adjusted change only the floor is known, a loss is not made larger than it was
        ("DOWN", "300", "92.7349", -727, "AAA fell 7.26% in 1 hour: 92.7349"),
        ("DOWN", "300", "95", -500, "AAA fell 5% in 1 hour: 95"),  # at least its threshold
    ],
)
def test_page_and_mail_say_the_same(fired: str, reference: str, price: str, current_bps: int, words: str) -> None:
    evidence = {**EVIDENCE, "fired": fired, "reference_price": reference, "price": price, "current_bps": current_bps}
    told = message("").model_copy(update={"evidence": Evidence.model_validate(evidence), "direction": fired})
    assert subject_of(told) == words
    page = summarize("AAA", None, 500, told.evidence)
    assert page.startswith(f"{words.partition(':')[0]}: {reference} at ")
    lines = dict(lines_of(told))
    assert lines["Threshold"] == f"{'up' if fired == 'UP' else 'down'} 5% in 1 hour"
    assert lines["In basis points, rounded down"] == f"1 before, {current_bps} now"


@pytest.mark.parametrize(
    ("fired", "side", "direction"), [("ABOVE", "below", "at or above"), ("BELOW", "above", "at or below")]
)
def test_a_price_alert_says_from_where(fired: str, side: str, direction: str) -> None:
    price = {**EVIDENCE, "fired": fired, "window": None, "previous_price": "1.2", "previous_event_time_ms": 1}
    told = TriggerMessage.model_validate(
        {**message("").model_dump(), "kind": "price", "direction": fired, "threshold_bps": None, "target": "1.15",
         "window": None, "evidence": price}
    )  # fmt: skip
    assert subject_of(told) == f"AAA reached 1.15 from {side}: 1.1"
    assert summarize("AAA", "1.15", None, told.evidence).startswith(f"AAA reached 1.15 from {side}: 1.2 at ")
    assert dict(lines_of(told))["Target"] == f"{direction} 1.15"


def delivery(address: str, kind: str = "webhook", note: str = "é 📈") -> Delivery:
    return Delivery("trg_1_0", 4, 1, kind, address, BOX.seal(SECRET), webhook_body(message(note)), 1, 1)


class Receiver:
    """A web server that answers from a list and keeps what it got."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.url = ""


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.got.append((dict(self.headers.items()), body))
            status, headers = receiver.answers.pop(0) if receiver.answers else (204, {})
            self.send_response(status)
            for name, value in {"content-length": "0", **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook?x=1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def channel() -> WebhookChannel:
    return WebhookChannel(BOX, SystemClock(), allow_private=True)


def test_each_try_has_the_same_bytes_and_id_and_verifies(channel: WebhookChannel, receiver: Receiver) -> None:
    receiver.answers = [(500, {})]
    sent = delivery(receiver.url)
    assert [channel.send(sent).result for _ in range(2)] == [Result.RETRY, Result.DELIVERED]
    (first, first_body), (second, second_body) = receiver.got
    assert first_body == second_body == sent.body
    assert first["webhook-id"] == second["webhook-id"] == sent.delivery_id
    for headers, body in receiver.got:
        data = Webhook(SECRET).verify(body, headers)
        assert (data["type"], data["data"]["note"]) == ("alert.triggered", "é 📈")


@pytest.mark.parametrize(
    ("status", "headers", "result", "after"),
    [
        (200, {}, Result.DELIVERED, None), (400, {}, Result.DEAD, None), (401, {}, Result.DEAD, None),
        (404, {}, Result.DEAD, None), (410, {}, Result.DEAD, None), (429, {"retry-after": "7"}, Result.RETRY, 7.0),
        (503, {}, Result.RETRY, None), (302, {"location": "http://127.0.0.1:1/"}, Result.DEAD, None),
    ],
)  # fmt: skip
def test_retry_classes(
    status: int,
    headers: dict[str, str],
    result: Result,
    after: float | None,
    channel: WebhookChannel,
    receiver: Receiver,
) -> None:
    receiver.answers = [(status, headers)]
    outcome = channel.send(delivery(receiver.url))
    assert (outcome.result, outcome.retry_after_seconds) == (result, after)
    assert outcome.disable_channel == (status == 410)
    assert len(receiver.got) == 1


def test_a_private_address_is_never_connected_to(receiver: Receiver) -> None:
    port = receiver.url.rpartition(":")[2]
    guarded = WebhookChannel(BOX, SystemClock(), resolver=lambda *_: ["127.0.0.1"])
    assert guarded.send(delivery(f"https://rebind.example:{port}")).result is Result.DEAD
    assert receiver.got == []


def test_the_resolved_address_is_the_one_connected_to(receiver: Receiver) -> None:
    pinned = WebhookChannel(BOX, SystemClock(), allow_private=True, resolver=lambda *_: ["127.0.0.1"])
    outcome = pinned.send(delivery(receiver.url.replace("127.0.0.1", "nowhere.invalid")))
    assert outcome.result is Result.DELIVERED
    assert {k.lower(): v for k, v in receiver.got[0][0].items()}["host"].startswith("nowhere.invalid:")


def test_a_dripping_receiver_is_cut_off_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        outcome = WebhookChannel(BOX, SystemClock(), allow_private=True, total_seconds=0.2).send(delivery(url))
    assert (outcome.result, outcome.reason) == (Result.RETRY, "no answer within 0.2 s")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("7", 7.0), ("soon", None), ("-3", None), ("999999999", 86_400.0),
     ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0), ("Tue, 14 Nov 2000 22:13:50 GMT", 0.0)],
)  # fmt: skip
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, 1_700_000_000_000) == seconds


class Session:
    """An SMTP session that fails as told, at the boundary of smtplib."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.sent: list[tuple[EmailMessage, list[str]]] = []

    def send_message(self, mail: EmailMessage, to_addrs: list[str]) -> None:
        if self.error:
            raise self.error
        self.sent.append((mail, to_addrs))

    def quit(self) -> None: ...

    def close(self) -> None: ...


SERVER = MailServer("127.0.0.1", 25, "Alerts <alerts@example.org>", "none")
Opener = Callable[[MailServer], smtplib.SMTP]


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (None, Result.DELIVERED),
        (smtplib.SMTPRecipientsRefused({"a@b.example": (450, b"busy")}), Result.RETRY),
        (smtplib.SMTPRecipientsRefused({"a@b.example": (550, b"no such user")}), Result.DEAD),
        (smtplib.SMTPDataError(451, b"later"), Result.RETRY),
        (smtplib.SMTPDataError(554, b"spam"), Result.DEAD),
        (smtplib.SMTPServerDisconnected("gone"), Result.RETRY),
        (TimeoutError(), Result.RETRY),
    ],
)
def test_mail_retry_classes(error: Exception | None, result: Result) -> None:
    channel = MailChannel(SERVER, lambda _: Session(error))  # type: ignore[arg-type, return-value]
    assert channel.send(delivery("a@b.example", "email")).result is result


def test_mail_is_never_delivered_without_a_server() -> None:
    outcome = MailChannel(None).send(delivery("a@b.example", "email"))
    assert outcome.result is Result.DEAD
    assert outcome.reason.startswith("not configured")
    refused = MailChannel(MailServer("127.0.0.1", 1, "a@b.example", "none")).send(delivery("a@b.example", "email"))
    assert refused.result is Result.RETRY


@contextmanager
def dripping(first: bytes, drop: bytes) -> Iterator[int]:
    """A mail server that says `first`, then `drop` every 20 ms for ever; its port."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line, suppress(OSError):
                line.sendall(first)
                while not ended.wait(0.02):
                    line.sendall(drop)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize("security", ["none", "starttls", "tls"])
@pytest.mark.parametrize(
    ("first", "drop"),
    [(b"", b"2"), (b"", b"220-more\r\n"), (b"220 hello\r\n", b"2"), (b"220 hello\r\n250-x\r\n", b"250-more\r\n")],
)
def test_a_dripping_mail_server_is_cut_off_in_time(first: bytes, drop: bytes, security: Any) -> None:
    """Each byte comes within smtplib's timeout."""
    before = time.monotonic()
    with dripping(first, drop) as port:
        server = MailServer("127.0.0.1", port, "a@b.example", security)
        outcome = MailChannel(server, partial(connect, total_seconds=0.4)).send(delivery("a@b.example", "email"))
    assert outcome.result is Result.RETRY
    assert time.monotonic() - before < 5


def test_a_name_server_that_hangs_is_within_the_deadline_of_both_channels() -> None:
    ended = threading.Event()

    def hanging(host: str, port: int) -> list[str]:
        ended.wait(60)
        return ["127.0.0.1"]

    before = time.monotonic()
    webhook = WebhookChannel(BOX, SystemClock(), allow_private=True, resolver=hanging, total_seconds=0.2)
    outcome = webhook.send(delivery("https://slow.example/"))
    assert (outcome.result, outcome.reason) == (
        Result.RETRY, "slow.example can't be resolved: no answer from the name server within 0.2 s"
    )  # fmt: skip
    with pytest.raises(OSError, match="no answer from the name server"):
        SmtpSession("slow.example", 25, exchange_seconds=9, total_seconds=0.2, resolver=hanging)
    assert time.monotonic() - before < 5
    ended.set()


def test_a_slow_name_server_leaves_less_for_the_rest() -> None:
    def slow(host: str, port: int) -> list[str]:
        time.sleep(0.6)
        return ["127.0.0.1"]

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://slow.example:{silent.getsockname()[1]}/"
        before = time.monotonic()
        channel = WebhookChannel(BOX, SystemClock(), allow_private=True, resolver=slow, total_seconds=1.2)
        assert channel.send(delivery(url)).result is Result.RETRY
    assert 1.2 <= time.monotonic() - before < 1.75


def test_no_send_outlasts_its_lease() -> None:
    assert max(TOTAL_SECONDS, SESSION_SECONDS) <= MAX_SEND_SECONDS
    assert MAX_SEND_SECONDS * 1000 * 2 <= LEASE_MS


@pytest.mark.parametrize("address", ["a@b.example, c@d.example", "a@b.example\r\nBcc: c@d.example", "x", ""])
def test_mail_goes_to_one_address_or_nowhere(address: str) -> None:
    assert (
        MailChannel(SERVER, lambda _: Session(None))
        .send(  # type: ignore[arg-type, return-value]
            delivery(address, "email")
        )
        .result
        is Result.DEAD
    )


@settings(deadline=None, max_examples=100)  # a slow machine is no failure
@given(
    st.text(max_size=300)
    | st.sampled_from(["x\r\nBcc: y@z.example", "📈 Über", "<script>", "=?utf-8?q?x?=", "0000¡𐀀𐀀𐀀 ¡", "a" * 5_000])
)
def test_no_note_breaks_out_of_the_subject(note: str) -> None:
    found = message(note)
    mail = compose_mail(found, SERVER.sender, "a@b.example", "trg_1_0_4")
    parsed = message_from_bytes(mail.as_bytes(), policy=default_policy)
    assert parsed.get_all("Bcc") is None
    assert parsed.get_all("To") == ["a@b.example"]
    assert parsed.get_all("Subject") == [subject_of(found)]


def test_the_html_is_escaped_and_long_subjects_are_cut() -> None:
    mail = compose_mail(message("<script>" + "x" * 5_000), SERVER.sender, "a@b.example", "d")
    html = mail.get_body(("html",))
    assert html is not None
    assert "<script>" not in html.get_content()
    assert len(subject_of(message("x" * 5_000))) == 200


def test_secrets_open_only_with_their_key() -> None:
    old, new = new_key(), new_key()
    sealed = SecretBox(old).seal(SECRET)
    assert SECRET.encode() not in sealed
    assert SecretBox(f"{new},{old}").open(sealed) == SECRET
    with pytest.raises(SealedSecretError):
        SecretBox(new).open(sealed)
    with pytest.raises(SecretKeyError):
        SecretBox("short")
