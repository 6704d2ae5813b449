"""Where a webhook may go."""

from __future__ import annotations

import ipaddress

import pytest

from finalizer.channels.address_guard import (
    UnresolvedNameError,
    UnsafeTargetError,
    may_connect,
    resolve_target,
    system_resolver,
)

FORBIDDEN = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "192.88.99.1", "::", "::1", "::ffff:127.0.0.1",
    "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1", "fec0::1",
    "fe80::1", "fc00::1", "ff02::1", "2001:db8::1", "100::1",
]  # fmt: skip


@pytest.mark.parametrize("text", FORBIDDEN)
def test_no_private_or_embedding_address(text: str) -> None:
    assert not may_connect(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["8.8.8.8", "93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"])
def test_public_addresses(text: str) -> None:
    assert may_connect(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "url",
    ["https://2130706433/", "https://0x7f.1/", "https://0177.0.0.1/", "https://127.1/", "https://[::ffff:7f00:1]/"],
)
def test_odd_spellings_are_judged_as_what_they_mean(url: str) -> None:
    with pytest.raises(UnsafeTargetError):
        resolve_target(url, system_resolver, allow_private=False)


def test_one_bad_address_condemns_the_name() -> None:
    with pytest.raises(UnsafeTargetError, match=r"leads to 10\.0\.0\.1"):
        resolve_target("https://a.example/", lambda *_: ["8.8.8.8", "10.0.0.1"], allow_private=False)


@pytest.mark.parametrize(
    "url",
    ["http://a.example/", "ftp://a.example/", "https://u:p@a.example/", "https:///x", "https://a.example:x/",
     "https://a.example/\r\nX: y", "https://a.example/ b", "https://a.example\\@b.example/", "https://" + "a" * 3000],
)  # fmt: skip
def test_no_other_urls(url: str) -> None:
    with pytest.raises(UnsafeTargetError):
        resolve_target(url, lambda *_: ["8.8.8.8"], allow_private=False)


def test_a_target_is_taken_apart_once() -> None:
    asked: list[tuple[str, int]] = []

    def resolver(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["8.8.8.8", "8.8.8.8", "8.8.4.4"]

    target = resolve_target("https://bücher.example:8443/p?q=1", resolver, allow_private=False)
    assert asked == [("xn--bcher-kva.example", 8443)]
    assert (target.path, target.host_header) == ("/p?q=1", "xn--bcher-kva.example:8443")
    assert target.addresses == ("8.8.8.8", "8.8.4.4")


def test_a_name_that_does_not_resolve_is_for_later() -> None:
    def resolver(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    with pytest.raises(UnresolvedNameError):
        resolve_target("https://a.example/", resolver, allow_private=False)
