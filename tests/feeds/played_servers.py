"""Servers on 127.0.0.1 that play a recorded session, line by line; the last line is played for ever."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

SESSIONS = Path(__file__).parent / "sessions"
Line = dict[str, Any]


def read_session(name: str) -> list[Line]:
    return [json.loads(line) for line in (SESSIONS / name).read_text().splitlines()]


@contextmanager
def answering(answer: Callable[[str], Line]) -> Iterator[str]:
    """An HTTP server whose every answer is asked for by the path with its query; its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            line = answer(self.path)
            if line.get("drop"):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            body = line["raw"].encode() if "raw" in line else json.dumps(line.get("body")).encode()
            self.send_response(line["status"])
            for name, value in line.get("headers", {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None: ...  # dropped on purpose

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def playing_http(lines: list[Line], asked: list[str] | None = None) -> Iterator[str]:
    """Each request gets the next line."""
    lock, left = threading.Lock(), list(lines)

    def answer(path: str) -> Line:
        with lock:
            if asked is not None:
                asked.append(path)
            return left.pop(0) if len(left) > 1 else left[0]

    with answering(answer) as url:
        yield url


@contextmanager
def playing_websocket(
    lines: list[Line], told: list[str] | None = None, sent_at_ms: list[int] | None = None
) -> Iterator[str]:
    """Connections play on where the last one ended; a connection whose lines are over stays open.

    told: first messages of the clients. sent_at_ms: monotonic time after each line was sent.
    """
    left, first_message = list(lines), threading.Semaphore()

    def handshake(connection: ServerConnection, request: Request) -> Response | None:
        if left and "reject" in left[0]:
            line = left.pop(0)
            status = HTTPStatus(line["reject"])
            return Response(
                status.value, status.phrase, Headers({**line.get("headers", {}), "Content-Length": "0"}), b""
            )
        return None

    def play(connection: ServerConnection) -> None:
        message = connection.recv()
        if told is not None:
            told.append(str(message))
        with first_message:
            while left:
                line = left.pop(0)
                if line.get("drop"):
                    connection.socket.shutdown(socket.SHUT_RDWR)
                    return
                connection.send(line["raw"] if "raw" in line else json.dumps(line["send"]))
                if sent_at_ms is not None:
                    sent_at_ms.append(time.monotonic_ns() // 1_000_000)
        try:
            connection.recv()
        except ConnectionClosed:
            return

    with serve(play, "127.0.0.1", 0, process_request=handshake) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()
