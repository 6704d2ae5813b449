"""The connection is cut during COMMIT, on either side of the server's doing it: nothing is lost and nothing doubled."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from finalizer.consumer import Consumer
from ports.memory_log import MemoryLog
from sql.connection import Pool, open_pool
from sql.finalizer_store import PostgresFinalizerStore
from tests.finalizer.settable_clock import SettableClock
from tests.finalizer.test_consumer import activation, candidate, drain, frame, publish
from tests.finalizer.world import DEAD_LETTERS, TOPIC, World

COMMIT = b"COMMIT\x00"
ALERTS = 60
A_BATCH = 10


class CuttingProxy:
    """Between a client and the server; `cut` says what happens at the next COMMIT: "before" it reaches the server,
    or "after" the server has answered, which the client never hears. Then it passes everything again."""

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut = ""
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with closing(client), closing(socket.create_connection(self._server)) as server:
            deaf = threading.Event()
            answers = threading.Thread(target=self._answer, args=(server, client, deaf), daemon=True)
            answers.start()
            while data := _receive(client):
                cut = self.cut if COMMIT in data else ""
                if cut:
                    self.cut, self.cuts = "", self.cuts + 1
                    if cut == "before":
                        break
                    deaf.set()
                server.sendall(data)
            _end(server)
            answers.join()

    def _answer(self, server: socket.socket, client: socket.socket, deaf: threading.Event) -> None:
        while data := _receive(server):
            if deaf.is_set():
                break
            try:
                client.sendall(data)
            except OSError:
                break
        _end(client)

    def close(self) -> None:
        self._listener.close()


def _receive(end: socket.socket) -> bytes:
    try:
        return end.recv(65_536)
    except OSError:
        return b""


def _end(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


@pytest.fixture
def proxy(postgres_server: str) -> Iterator[CuttingProxy]:
    told = conninfo_to_dict(postgres_server)
    proxy = CuttingProxy(str(told["host"]), int(told["port"]))
    yield proxy
    proxy.close()


@pytest.fixture
def pool_behind(proxy: CuttingProxy, pool: Pool, postgres_server: str, postgres_schema: str) -> Iterator[Pool]:
    """To the schema of `pool`, through the proxy."""
    dsn = make_conninfo(postgres_server, host="127.0.0.1", port=proxy.port)
    with open_pool(dsn, postgres_schema, "behind", max_size=1) as behind:
        yield behind


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_consumer_whose_commit_is_cut_doubles_nothing(
    cut: str, world: World, log: MemoryLog, clock: SettableClock, proxy: CuttingProxy, pool_behind: Pool
) -> None:
    ids = world.add_alerts(ALERTS)
    publish(log, frame([activation(i, n) for n, i in enumerate(ids, 1)]))

    def open_consumer() -> Consumer:
        return Consumer(
            PostgresFinalizerStore(pool_behind), log.reader(), log.writer(), clock,
            candidates=TOPIC, dead_letters=DEAD_LETTERS,
        )  # fmt: skip

    drain(open_consumer())
    consumer = open_consumer()
    consumer.step()  # positions and gaps are read: the next COMMIT is a batch's
    for first in range(0, ALERTS, A_BATCH):
        number = ALERTS + 1 + first
        claims = [candidate(i, number + n) for n, i in enumerate(ids[first : first + A_BATCH])]
        publish(log, frame(claims, first=number))
        proxy.cut = cut
        with pytest.raises(psycopg.OperationalError):
            consumer.step()
        fired = world.statuses().get("TRIGGERED", 0)
        assert fired == first + (A_BATCH if cut == "after" else 0)  # the cut was where it was meant to be
        consumer = open_consumer()
        drain(consumer)
        assert world.statuses().get("TRIGGERED", 0) == first + A_BATCH
    assert proxy.cuts == ALERTS // A_BATCH
    assert world.value("SELECT count(*) FROM triggers") == ALERTS
    world.check_invariants()
