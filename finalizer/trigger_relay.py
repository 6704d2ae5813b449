"""The trigger outbox into triggers.v1: at least once, in no promised order between owners."""

from __future__ import annotations

from typing import Any, Final

import structlog
from pydantic import ValidationError

from contracts.dead_letter import Reason, dead_letter
from contracts.trigger import TriggerMessage
from finalizer.failpoints import Failpoint, survive
from finalizer.ports import OutboxTrigger, TriggerRelayStore
from ports.message_log import LogWriter

MAX_TRIGGERS_A_STEP: Final = 1_000

log = structlog.get_logger()


class TriggerRelay:
    """Service. Rows are marked only after the log's acknowledgement; a crash between publishes them again."""

    def __init__(
        self,
        store: TriggerRelayStore,
        writer: LogWriter,
        *,
        triggers: str,
        dead_letters: str,
        fail: Failpoint = survive,
    ) -> None:
        """triggers, dead_letters: topic names in this environment."""
        self._store, self._writer, self._fail = store, writer, fail
        self._topic, self._dead_letters = triggers, dead_letters
        self._published = 0
        self._unreadable = 0

    def step(self) -> bool:
        with self._store.unpublished(MAX_TRIGGERS_A_STEP) as work:
            if not work.triggers:
                return False
            for trigger in work.triggers:
                self._append(trigger)
            self._fail("appended")
            self._writer.flush()
            self._fail("flushed")
            work.mark_published()
        self._fail("committed")
        self._published += len(work.triggers)
        return True

    def _append(self, trigger: OutboxTrigger) -> None:
        """An unreadable row becomes a dead letter, so that it can't hold up the good ones behind it."""
        key = str(trigger.owner_id).encode()
        try:
            message = TriggerMessage.model_validate(trigger.payload)
        except ValidationError as error:
            self._unreadable += 1
            log.error("unreadable outbox row", trigger_id=trigger.trigger_id, errors=error.error_count())
            letter = dead_letter(
                Reason.BAD_FRAME,
                f"outbox row {trigger.trigger_id}: {error.error_count()} wrong fields",
                feed="",
                symbol=None,
                source="triggers",
                position=0,
                raw=repr(dict(trigger.payload)).encode(),
            )
            self._writer.append(self._dead_letters, key, letter.model_dump_json().encode(), 0)
            return
        value = message.model_dump_json().encode()
        self._writer.append(self._topic, key, value, message.evidence.event_time_ms)

    def detail(self) -> dict[str, Any]:
        return {"triggers_published": self._published, "unreadable": self._unreadable}

    def close(self) -> None:
        self._writer.close()
