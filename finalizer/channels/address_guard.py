"""Where a webhook may connect to: a name is resolved once, every address is judged, the connection is pinned to it.

Own code: the one library for httpx (drawbridge 0.1.2) is an alpha with a single release.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

import idna

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_URL_CHARACTERS: Final = 2_048
MAX_ADDRESSES_TRIED: Final = 4
MAX_LOOKUPS: Final = 128  # at once; those that were given up count until the system's resolver lets go of them

# `is_global` alone passes forms that carry an IPv4 address inside, and some old ranges. None of these is a public
# web server's own address, so a whole range is refused, whatever is inside.
DENIED: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier NAT
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, cloud metadata
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/8",  # unspecified, loopback, v4-compatible, v4-mapped
        "64:ff9b::/32",  # NAT64, well-known and local
        "100::/64",  # discard
        "2001::/23",  # Teredo, ORCHID and other special uses
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",  # unique local
        "fe80::/10",  # link-local
        "fec0::/10",  # site-local, once
        "ff00::/8",
    )
)


class UnsafeTargetError(ValueError):
    """A URL that must not be connected to; `reason` is for its owner."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnresolvedNameError(OSError):
    """The name has no address just now."""


class Resolver(Protocol):
    """Addresses of a host as texts, best first. Raises OSError."""

    def __call__(self, host: str, port: int) -> Sequence[str]: ...


def system_resolver(host: str, port: int) -> Sequence[str]:
    """The machine's own; it also reads 2130706433 and 0x7f.1 as addresses, so those are judged like any."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


_free_lookups = threading.BoundedSemaphore(MAX_LOOKUPS)


def resolver_within(resolver: Resolver, seconds: float) -> Resolver:
    """The same, but an OSError after `seconds`: getaddrinfo itself knows no deadline and can't be interrupted.

    A lookup that is given up ends in its own daemon thread, which no stop waits for.
    """

    def resolve(host: str, port: int) -> Sequence[str]:
        if not _free_lookups.acquire(blocking=False):
            raise OSError(f"{MAX_LOOKUPS} name lookups hang already")
        answer: Future[Sequence[str]] = Future()

        def look_up() -> None:
            try:
                answer.set_result(resolver(host, port))
            except Exception as error:
                answer.set_exception(error)
            finally:
                _free_lookups.release()

        threading.Thread(target=look_up, name="look-up", daemon=True).start()
        try:
            return answer.result(timeout=seconds)
        except FutureTimeoutError:
            if answer.done():
                raise  # the resolver's own
            raise OSError(f"no answer from the name server within {seconds:g} s") from None

    return resolve


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart, with the only addresses it may be sent to."""

    scheme: str
    host: str  # ASCII; for the Host header and the certificate
    port: int
    path: str  # with the query
    addresses: tuple[str, ...]

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"


def may_connect(address: Address) -> bool:
    """Whether an address is a public unicast one that carries no other inside."""
    if not address.is_global or address.is_multicast:
        return False
    return not any(address in network for network in DENIED if network.version == address.version)


def resolve_target(url: str, resolver: Resolver, *, allow_private: bool) -> Target:
    """Take a URL apart, resolve its host once, and judge every address; one bad address condemns the name.

    allow_private: the self-hoster's opt-in, which also allows plain http. Raises UnsafeTargetError (for good),
    UnresolvedNameError (for now).
    """
    scheme, host, port, path = _take_apart(url)
    if scheme != "https" and not allow_private:
        raise UnsafeTargetError("the address must begin with https://")
    try:
        texts = resolver(host, port)
    except (OSError, UnicodeError) as error:
        raise UnresolvedNameError(f"{host} can't be resolved: {error}") from error
    addresses = [ipaddress.ip_address(text.partition("%")[0]) for text in texts]
    if not addresses:
        raise UnresolvedNameError(f"{host} has no address")
    if not allow_private:
        for address in addresses:
            if not may_connect(address):
                raise UnsafeTargetError(f"{host} leads to {address}, which is no public address")
    unique = dict.fromkeys(str(address) for address in addresses)
    return Target(scheme, host, port, path, tuple(unique)[:MAX_ADDRESSES_TRIED])


def _take_apart(url: str) -> tuple[str, str, int, str]:
    if len(url) > MAX_URL_CHARACTERS or not url.isprintable() or " " in url or "\\" in url:
        raise UnsafeTargetError("the address is no plain URL")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UnsafeTargetError("the address is no plain URL") from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.password is not None:
        raise UnsafeTargetError("the address must be https://host/path, without user and password")
    if not host.isascii():
        try:
            host = idna.encode(host, uts46=True).decode()
        except idna.IDNAError:
            raise UnsafeTargetError("the address's host name is not valid") from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path
