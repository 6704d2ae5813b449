"""Mails through a real SMTP server, plain and over both kinds of TLS."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default as default_policy
from pathlib import Path
from typing import Any, Literal

import pytest
from aiosmtpd.controller import Controller
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from finalizer.channels.mail import MailChannel, MailServer
from finalizer.channels.outcome import Result
from tests.finalizer.test_channels import delivery


class Keeping:
    """aiosmtpd's handler."""

    def __init__(self) -> None:
        self.got: list[tuple[list[str], bytes]] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.got.append((envelope.rcpt_tos, envelope.content))
        return "250 kept"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Key and certificate of 127.0.0.1, its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "both.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def server(
    request: pytest.FixtureRequest, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Keeping, MailServer]]:
    """A server of the security that the test asks for, which this process trusts."""
    security: Literal["none", "starttls", "tls"] = request.param
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    tls: dict[str, Any] = {
        "none": {}, "starttls": {"tls_context": context, "require_starttls": True}, "tls": {"ssl_context": context}
    }[security]  # fmt: skip
    keeping = Keeping()
    with socket.create_server(("127.0.0.1", 0)) as free:  # the controller can't choose one
        port = free.getsockname()[1]
    controller = Controller(keeping, hostname="127.0.0.1", port=port, **tls)
    controller.start()
    yield keeping, MailServer("127.0.0.1", port, "Alerts <alerts@example.org>", security)
    controller.stop()


@pytest.mark.parametrize("server", ["none", "starttls", "tls"], indirect=True)
def test_a_mail_arrives_at_its_one_recipient(server: tuple[Keeping, MailServer]) -> None:
    keeping, where = server
    assert MailChannel(where).send(delivery("a@b.example", "email")).result is Result.DELIVERED
    ((recipients, content),) = keeping.got
    assert recipients == ["a@b.example"]
    assert message_from_bytes(content, policy=default_policy)["Subject"].startswith("AAA rose 10% in 1 hour: 1.1")


@pytest.mark.parametrize("server", ["starttls", "tls"], indirect=True)
def test_a_server_of_another_name_gets_no_mail(server: tuple[Keeping, MailServer]) -> None:
    keeping, where = server
    impostor = MailServer("localhost", where.port, where.sender, where.security)
    outcome = MailChannel(impostor).send(delivery("a@b.example", "email"))
    assert (outcome.result, keeping.got) == (Result.RETRY, [])
    assert "certificate" in outcome.reason.lower()
