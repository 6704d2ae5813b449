"""triggers.v1 to owners: a ledger row per trigger and channel, claimed under a token and lease, sent, settled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from datetime import UTC, datetime
from time import sleep
from typing import Any, Final

import structlog
from pydantic import ValidationError

from contracts.dead_letter import Reason, dead_letter
from contracts.trigger import TriggerMessage, WebhookEvent
from finalizer.channels.outcome import Channel, Delivery, Outcome, Result, dead, retry
from finalizer.failpoints import Failpoint, survive
from finalizer.ports import DeliveryStore, Moves, NewDelivery, PositionsMovedError, Settled
from finalizer.retry_schedule import DEFAULT_RETRY_SECONDS, rest_seconds
from ports.clock import Clock
from ports.message_log import LogReader, LogRecord, LogWriter

MAX_RECORDS_A_POLL: Final = 500
MAX_SENDS: Final = 64  # at once, in this process; one owner has at most MAX_SENDS_AN_OWNER of them
CLAIM_INTERVAL_MS: Final = 100  # how often an idle notifier looks for rows that have become due
LEASE_MS: Final = 120_000  # twice the longest send (channels.outcome.MAX_SEND_SECONDS)
CLOSE_SECONDS: Final = 15.0  # for what is being sent
CLOSE_RESTS_SECONDS: Final = (0.5, 2.0)  # between tries to record what was sent; one try more than rests
POLL_SECONDS: Final = 0.1  # while nothing comes
SENDING_POLL_SECONDS: Final = 0.02  # results wait to be recorded

log = structlog.get_logger()


class Notifier:
    """Service. Several may run: a row is sent only by whoever holds its newest token and a lease that lasts."""

    def __init__(
        self,
        store: DeliveryStore,
        reader: LogReader,
        writer: LogWriter,
        clock: Clock,
        *,
        channels: Mapping[str, Channel],
        executor: Executor,
        random: Callable[[], float],
        triggers: str,
        dead_letters: str,
        retry_seconds: Sequence[float] = DEFAULT_RETRY_SECONDS,
        fail: Failpoint = survive,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        """channels: by channel kind. executor: runs sends. triggers, dead_letters: topic names. pause: lets seconds
        pass also when the service was told to stop, which ends the clock's waits."""
        self._store, self._reader, self._writer, self._clock, self._fail = store, reader, writer, clock, fail
        self._channels, self._executor, self._random = channels, executor, random
        self._pause = pause
        self._topic, self._dead_letters, self._retry_seconds = triggers, dead_letters, retry_seconds
        self._positions: dict[int, int] | None = None
        self._running: dict[Future[Outcome], Delivery] = {}
        self._settled: list[Settled] = []
        self._next_claim_ms = 0
        self._figures = dict.fromkeys(
            ("accepted", "attempts", "delivered", "retried", "dead", "late_results", "corrupt_records"), 0
        )

    def step(self) -> bool:
        accepted = self._accept()
        settled = self._settle()
        return self._claim() or accepted or settled

    # -- from the log into the ledger
    def _accept(self) -> bool:
        if self._positions is None:
            positions = self._store.positions(self._topic, self._reader.partitions(self._topic))
            self._reader.assign({(self._topic, partition): offset for partition, offset in positions.items()})
            self._positions = positions
        records = self._reader.poll(MAX_RECORDS_A_POLL, SENDING_POLL_SECONDS if self._running else POLL_SECONDS)
        if not records:
            return False
        positions, self._positions = self._positions, None
        offsets: dict[int, tuple[int, int]] = {}
        for record in records:
            read_from, _ = offsets.get(record.partition, (positions[record.partition], 0))
            offsets[record.partition] = read_from, record.offset + 1
        deliveries = self._read(records)
        try:
            rows = self._store.accept(Moves(self._topic, offsets), deliveries, self._clock.wall_ms())
        except PositionsMovedError:
            return True
        self._fail("accepted")
        self._positions = positions | {partition: after for partition, (_, after) in offsets.items()}
        self._figures["accepted"] += rows
        self._next_claim_ms = 0
        return True

    def _read(self, records: Sequence[LogRecord]) -> list[NewDelivery]:
        found = []
        bad = False
        for record in records:
            try:
                message = TriggerMessage.model_validate_json(record.value)
            except ValidationError as error:
                bad = True
                self._bury(record, f"{error.error_count()} wrong fields")
                continue
            found.append(NewDelivery(message.trigger_id, message.owner_id, message.channel_ids, webhook_body(message)))
        if bad:
            self._writer.flush()
        return found

    def _bury(self, record: LogRecord, why: str) -> None:
        self._figures["corrupt_records"] += 1
        log.error("corrupt record", topic=record.topic, partition=record.partition, offset=record.offset, why=why)
        letter = dead_letter(
            Reason.BAD_FRAME,
            f"no trigger message: {why}",
            feed="",
            symbol=None,
            source=f"{record.topic}[{record.partition}]",
            position=record.offset,
            raw=record.value,
        )
        self._writer.append(self._dead_letters, record.key, letter.model_dump_json().encode(), record.timestamp_ms)

    # -- from the ledger to the owners
    def _claim(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        free = MAX_SENDS - len(self._running)
        if free <= 0 or now_ms < self._next_claim_ms:
            return False
        claimed = self._store.claim(free, self._clock.wall_ms(), LEASE_MS)
        self._fail("claimed")
        self._next_claim_ms = 0 if len(claimed) == free else now_ms + CLAIM_INTERVAL_MS
        for delivery in claimed:
            self._running[self._executor.submit(self._send, delivery)] = delivery
        self._figures["attempts"] += len(claimed)
        return bool(claimed)

    def _send(self, delivery: Delivery) -> Outcome:
        channel = self._channels.get(delivery.kind)
        if channel is None:
            return dead(f"this installation has no channel {delivery.kind!r}")
        if delivery.disabled:
            return dead("the channel is disabled")
        return channel.send(delivery)

    def _settle(self) -> bool:
        """Results stay here until they are recorded; when this process dies with them, the lease brings a repeat."""
        for future in [future for future in self._running if future.done()]:
            self._settled.append(self._judge(self._running.pop(future), future))
        if not self._settled:
            return False
        self._fail("sent")
        held = self._store.settle(self._settled, self._clock.wall_ms())
        self._figures["late_results"] += len(self._settled) - held
        self._settled = []
        self._next_claim_ms = 0
        return True

    def _judge(self, delivery: Delivery, future: Future[Outcome]) -> Settled:
        error = future.exception()
        if error is not None:
            log.error("channel failed", kind=delivery.kind, trigger_id=delivery.trigger_id, exc_info=error)
        outcome = future.result() if error is None else retry(f"internal: {type(error).__name__}")
        now_ms = self._clock.wall_ms()
        if outcome.result is Result.RETRY:
            wished = outcome.retry_after_seconds
            rest = rest_seconds(delivery.attempts, wished, self._retry_seconds, self._random)
            if rest is not None:
                self._figures["retried"] += 1
                return Settled(delivery, Result.RETRY, outcome.reason, now_ms + round(rest * 1000), False)
            outcome = dead(f"given up after {delivery.attempts} tries: {outcome.reason}")
        self._figures["delivered" if outcome.result is Result.DELIVERED else "dead"] += 1
        if outcome.result is Result.DEAD:
            log.warning("delivery is dead", delivery=delivery.delivery_id, kind=delivery.kind, why=outcome.reason)
        return Settled(delivery, outcome.result, outcome.reason, now_ms, outcome.disable_channel)

    def detail(self) -> dict[str, Any]:
        positions = {str(p): o for p, o in (self._positions or {}).items()}
        return {**self._figures, "sending": len(self._running), "positions": positions}

    def close(self) -> None:
        """Waits a little for what is being sent, and for a database that is away, so that a stop makes no repeats."""
        wait(self._running, CLOSE_SECONDS)
        for rest in (*CLOSE_RESTS_SECONDS, None):
            try:
                self._settle()
                break
            except Exception as error:  # the database may be why we close
                if rest is None:
                    ids = [settled.delivery.delivery_id for settled in self._settled]
                    log.error("results not recorded, leases will bring repeats", deliveries=ids, error=str(error))
                else:
                    self._pause(rest)
        self._reader.close()
        self._writer.close()


def webhook_body(message: TriggerMessage) -> bytes:
    """The bytes that every channel of a trigger works from, made once."""
    at = datetime.fromtimestamp(message.evidence.finalized_at_ms / 1000, UTC)
    return WebhookEvent(timestamp=at.isoformat(timespec="milliseconds"), data=message).model_dump_json().encode()
