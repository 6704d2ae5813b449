"""Symbols move between shards again and again while a scenario plays through the whole stack: no answer changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from finalizer.shard_ports import Phase, RebuildPhase
from sql.connection import Pool, open_pool
from sql.rebuild_store import PostgresRebuildStore, RebuildProgress
from sql.reference_store import ReferenceStore, UnknownInstrumentError
from sql.reshard_store import PostgresReshardStore
from stack.embedded import EmbeddedStack
from stack.replay.own_environment import OwnEnvironment, own_environment
from stack.replay.scenario import read_scenario
from stack.replay.stack_engine import SERVICES, FeedReplay
from tests.scenarios.answers import answers, differences

SEEDS = range(5, 6)
SMALL = ("--alerts", "30", "--minutes", "10")
ROUTES = (3, 1, 2, 4, 1)  # one after the other, over and over: away, back, from hot to hot
FEW_MOVES = 6
TIMEOUT_S = 120.0


class Mover:
    """Moves symbols, one move behind the other, until it is told to stop."""

    def __init__(self, pool: Pool, symbols: list[str]) -> None:
        self._reference, self._reshards, self._symbols = ReferenceStore(pool), PostgresReshardStore(pool), symbols
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mover")
        self.done = self.copied = 0
        self.problem = ""

    def __enter__(self) -> Mover:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        turn = 0
        while not self._stopping.is_set() and not self.problem:
            shards = ROUTES[turn % len(ROUTES)]
            turn += 1
            for symbol in self._symbols:
                self._move(symbol, shards)

    def _move(self, symbol: str, shards: int) -> None:
        try:
            self._reference.set_routing(symbol, shards)
        except UnknownInstrumentError:
            self._stopping.wait(0.1)
            return
        deadline = time.monotonic() + TIMEOUT_S
        while (progress := self._reshards.newest(symbol)) is not None and progress.reshard.phase is not Phase.DONE:
            if time.monotonic() > deadline:
                self.problem = f"{symbol} is {progress.reshard.phase} for {TIMEOUT_S:.0f} s"
                return
            time.sleep(0.02)
        if progress is not None:
            self.done += 1
            self.copied += progress.copied


@contextmanager
def pool_of(own: OwnEnvironment) -> Iterator[Pool]:
    with open_pool(own.stack.postgres_dsn, own.environment.schema, "mover") as pool:
        yield pool


def verified(pool: Pool) -> list[RebuildProgress]:
    store, deadline = PostgresRebuildStore(pool), time.monotonic() + TIMEOUT_S
    ids = store.request(None, None, repair=False)
    while any(rebuild.phase is not RebuildPhase.DONE for rebuild in store.progress(ids)):
        assert time.monotonic() < deadline, store.progress(ids)
        time.sleep(0.02)
    return store.progress(ids)


def test_nothing_is_lost_doubled_or_told_with_other_evidence_while_symbols_move(
    embedded_stack: EmbeddedStack, tmp_path
) -> None:
    with own_environment("moving", (*SERVICES, "shard-upkeep"), stack=embedded_stack) as own, pool_of(own) as pool:
        for seed, path, wanted in answers(SEEDS, tmp_path, *SMALL):
            scenario = read_scenario(path)
            prefix = f"S{seed}:"
            symbols = sorted(
                {prefix + operation.symbol for operation in scenario.operations if hasattr(operation, "decimals")}
            )
            with Mover(pool, symbols) as mover:
                rows = FeedReplay(own, f"s{seed}", 2, symbol_prefix=prefix).run(scenario)
            assert mover.problem == ""
            assert differences(wanted, rows) == []
            assert mover.done >= FEW_MOVES
            assert mover.copied > 0
        assert [
            (rebuild.shard, rebuild.differences)
            for rebuild in verified(pool)
            if rebuild.missing or rebuild.surplus or rebuild.other_version
        ] == []
