"""Mutants of gateway and rule relay: the two ways into the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from contracts.frames_pb2 import Control, ShardLogRecord
from feeds import feed_opening
from feeds.domain.gateway_core import GatewayCore
from feeds.domain.pending_frame import PendingFrame
from feeds.domain.recovered import RecoveredFeed
from feeds.gateway import MAX_CONTROLS, FeedGateway
from finalizer.rule_relay import MAX_COMMANDS_A_STEP, RuleRelay, frames_of
from flink_jobs.domain import rolling
from simulation.database import feed_store, relay_store
from simulation.jobs import SimulatedJob
from simulation.mutants.mutant import Mutant, changed, skipped, swapped


def _marked_first(right: Any) -> Any:
    """Commands count as published before the log has them."""

    def publish(self: Any, shards: Any) -> bool:
        self._fences |= self._store.take([shard for shard in shards if shard not in self._fences])
        fences = {shard: self._fences[shard] for shard in shards}
        self._store.number(fences, MAX_COMMANDS_A_STEP)
        commands = self._store.numbered(fences, MAX_COMMANDS_A_STEP)
        self._store.mark_published(fences, [command.command_id for command in commands])
        for frame in frames_of(commands):
            record = ShardLogRecord(commands=frame)
            self._writer.append(self._topic, frame.shard.encode(), record.SerializeToString(), 1)
        self._writer.flush()
        return bool(commands)

    return publish


def _numbers_again(right: Any) -> Any:
    """Whoever takes a shard counts from 1 again."""

    def take(database: Any, tx: Any, shards: Any) -> dict[str, int]:
        taken: dict[str, int] = right(database, tx, shards)
        for shard in taken:
            tx.update(database.shard_relays.primary.records[shard], {"last_number": 0})
        return taken

    return take


def _backwards(right: Any) -> Any:
    return lambda *given: right(*given)[::-1]


def _numbers_of_the_moment(right: Any) -> Any:
    """A command's number is its place among what is waiting now."""

    def numbered(database: Any, tx: Any, shards: Any, limit: int) -> list[Any]:
        found = right(database, tx, shards, limit)
        places: dict[str, int] = {}
        again: list[Any] = []
        for command in found:
            published = sum(
                row["shard"] == command.shard and row["published_at"] is not None
                for row in tx.rows(database.rule_commands)
            )
            places[command.shard] = places.get(command.shard, published) + 1
            again.append(replace(command, number=places[command.shard], command=found[-1 - len(again)].command))
        return again

    return numbered


def _nothing_known(right: Any) -> Any:
    """A new gateway reads its source from the beginning, whatever the buckets have."""
    return lambda *given: {feed: RecoveredFeed({}, known.frontier_ms) for feed, known in right(*given).items()}


def _any_lease(right: Any) -> Any:
    """Frames of a gateway that is over count, and none is known as a repeat."""

    def read(*given: Any) -> Any:
        frame = right(*given)
        return replace(frame, lease=1, frame_number=0)

    return read


def _no_numbers(right: Any) -> Any:
    return lambda *given: replace(right(*given), frame_number=0)


def _controls_marked_first(right: Any) -> Any:
    def publish(self: Any, core: Any) -> bool:
        feed = core.settings.feed
        pending = self._store.number_controls(feed, core.lease, MAX_CONTROLS)
        self._store.mark_published(feed, core.lease, [row.control_id for row in pending])
        for row in pending:
            control = Control.FromString(row.payload)
            core.accept_control(control, row.control_number, row.bucket, self._clock.monotonic_ms())
        self._write(everything=True)
        return len(pending) == MAX_CONTROLS

    return publish


def _to_every_feed(right: Any) -> Any:
    """One feed's heartbeats move the clocks of all."""

    def dispatch(self: Any, entries: Any, before: Any) -> bool:
        spread = []
        for entry in entries:
            spread.append(entry)
            if type(entry.body) is dict and entry.body.get("type") == "heartbeat":
                spread += [
                    entry._replace(body={**entry.body, "feed": feed})
                    for feed in self._cores
                    if feed != entry.body["feed"]
                ]
        return bool(right(self, spread, before))

    return dispatch


def _controls_in_front(right: Any) -> Any:
    """Heartbeats and other controls go before the ticks of their frame."""

    def add(self: Any, control: Any) -> None:
        right(self, control)
        self.controls = [(0, placed) for _, placed in self.controls]

    return add


def _silent(right: Any) -> Any:
    def bury(self: Any, *_: Any) -> None:
        self.rejected += 1

    return bury


def _positions_ahead(right: Any) -> Any:
    """A frame says that the entry after it is in, too."""

    def positions(self: Any, bucket: int) -> dict[str, int]:
        return {partition: position + 1 for partition, position in right(self, bucket).items()}

    return positions


@contextmanager
def _old_epoch() -> Iterator[None]:
    """A job without state numbers on under the epoch it had."""

    def lose(right: Callable[..., None]) -> Callable[..., None]:
        def forget(self: SimulatedJob) -> None:
            self.checkpoints.clear()
            self.generation += 1

        return forget

    with swapped(SimulatedJob, "lose_state", lose):
        yield


RELAYING: Final = (
    Mutant(
        "commands-marked-first",
        "rule commands count as published before the log has them",
        changed(RuleRelay, "_publish", _marked_first),
    ),
    Mutant(
        "commands-numbered-again",
        "whoever takes a shard counts from 1 again",
        changed(relay_store, "take_shards", _numbers_again),
    ),
    Mutant(
        "commands-backwards",
        "commands are published against their numbers",
        changed(relay_store, "read_numbered", _backwards),
    ),
    Mutant(
        "commands-numbered-late",
        "the same number means two commands",
        changed(relay_store, "read_numbered", _numbers_of_the_moment),
    ),
    Mutant(
        "gateway-recovers-nothing",
        "a new gateway writes again what the log has",
        changed(feed_opening, "recover", _nothing_known),
    ),
    Mutant(
        "gateway-positions-ahead",
        "a frame claims an entry that it does not hold",
        changed(GatewayCore, "_positions_of", _positions_ahead),
    ),
    Mutant("lease-ignored", "frames of a gateway that is over count", changed(rolling, "read_price_frame", _any_lease)),
    Mutant(
        "repeated-frame-counts",
        "a frame that the broker kept twice counts twice",
        changed(rolling, "read_price_frame", _no_numbers),
    ),
    Mutant(
        "controls-marked-first",
        "an operator's word counts as published before the log has it",
        changed(FeedGateway, "_publish_some", _controls_marked_first),
    ),
    Mutant(
        "heartbeat-across-feeds", "one feed's clock moves another's", changed(FeedGateway, "_dispatch", _to_every_feed)
    ),
    Mutant(
        "heartbeat-before-ticks",
        "a frontier jumps the ticks before it",
        changed(PendingFrame, "add_control", _controls_in_front),
    ),
    Mutant("refused-in-silence", "a refused tick leaves no dead letter", changed(GatewayCore, "_bury", _silent)),
    Mutant("epoch-kept-without-state", "a job without state goes on under the epoch it had", _old_epoch),
    Mutant(
        "feed-lease-unlocked", "a gateway that is over numbers and marks controls", skipped(feed_store, "lock_lease")
    ),
)
