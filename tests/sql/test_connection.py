"""The pool's connections, as the kernel has them."""

from __future__ import annotations

import socket

from psycopg.conninfo import make_conninfo

from sql.connection import (
    KEEPALIVE_IDLE_SECONDS,
    KEEPALIVE_INTERVAL_SECONDS,
    KEEPALIVE_PROBES,
    TCP_USER_TIMEOUT_MS,
    open_pool,
)

OPTIONS = {
    "keepalive": (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    "idle": (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
    "interval": (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
    "probes": (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
    "user_timeout_ms": (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
}


def options_of(dsn: str) -> dict[str, int]:
    with open_pool(dsn, "public", "tests", max_size=1) as pool, pool.connection() as connection:
        line = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        with line:
            return {name: line.getsockopt(*option) for name, option in OPTIONS.items()}


def test_a_server_that_vanished_is_noticed(postgres_server: str) -> None:
    assert options_of(postgres_server) == {
        "keepalive": 1,
        "idle": KEEPALIVE_IDLE_SECONDS,
        "interval": KEEPALIVE_INTERVAL_SECONDS,
        "probes": KEEPALIVE_PROBES,
        "user_timeout_ms": TCP_USER_TIMEOUT_MS,
    }


def test_what_the_operator_set_stands(postgres_server: str) -> None:
    found = options_of(make_conninfo(postgres_server, keepalives_idle=77, tcp_user_timeout=1234))
    assert (found["idle"], found["user_timeout_ms"], found["probes"]) == (77, 1234, KEEPALIVE_PROBES)
