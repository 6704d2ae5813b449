"""An SMTP session with a deadline for all of it.

smtplib's own timeout is for each read, so a server that drips a byte at a time, or a reply without end, keeps a session
for ever.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from contextlib import suppress
from time import monotonic

from finalizer.channels.address_guard import MAX_ADDRESSES_TRIED, Resolver, resolver_within, system_resolver


class SmtpSession(smtplib.SMTP):
    """Connected when it is made. When its time is over the line is cut, whatever it waits for, and the call that waits
    raises smtplib.SMTPServerDisconnected or an OSError."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        exchange_seconds: float,
        total_seconds: float,
        tls: ssl.SSLContext | None = None,
        resolver: Resolver = system_resolver,
    ) -> None:
        """exchange_seconds: for each read and write. total_seconds: for all, from the name lookup. tls: from the first
        byte. Raises smtplib.SMTPException, OSError."""
        self._ends_at, self._tls, self._resolver = monotonic() + total_seconds, tls, resolver
        self._line: socket.socket | None = None
        self._watchdog = threading.Timer(total_seconds, self._cut)
        self._watchdog.daemon = True
        self._watchdog.start()
        # smtplib would ask the name server for this machine's full name
        name = socket.gethostname()
        super().__init__(local_hostname=name if "." in name else "[127.0.0.1]", timeout=exchange_seconds)
        self._host = host  # starttls verifies this name
        try:
            code, words = self.connect(host, port)
            if code != 220:
                raise smtplib.SMTPConnectError(code, words)
        except BaseException:
            self.close()
            raise

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        """smtplib's hook."""
        connection = self._connect(host, port, timeout)
        try:
            self._line = connection.dup()  # TLS takes the other one's descriptor over
            connection.settimeout(timeout)
            return self._tls.wrap_socket(connection, server_hostname=host) if self._tls else connection
        except BaseException:
            connection.close()
            raise

    def _connect(self, host: str, port: int, timeout: float) -> socket.socket:
        """The name lookup and each address get what is left of the whole."""
        addresses = resolver_within(self._resolver, self._left())(host, port)
        failure = OSError(f"{host} has no address")
        for address in list(dict.fromkeys(addresses))[:MAX_ADDRESSES_TRIED]:
            try:
                return socket.create_connection((address, port), min(timeout, self._left()))
            except OSError as error:
                failure = error
        raise failure

    def _left(self) -> float:
        left = self._ends_at - monotonic()
        if left <= 0:
            raise TimeoutError("the session's time is over")
        return left

    def _cut(self) -> None:
        if self._line is not None:
            with suppress(OSError):  # it was closed meanwhile
                self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._watchdog.cancel()
        super().close()
        if self._line is not None:
            self._line.close()
