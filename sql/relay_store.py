"""The two relays' outboxes in Postgres (finalizer/ports.py has the contract)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
from psycopg import Connection

from contracts.frames_pb2 import Command, CreateRule, RemoveRule
from finalizer.ports import FencedError, NumberedCommand, OutboxTrigger
from sql.connection import Pool, Row, transaction
from sql.named import load_queries
from sql.rules import rule_message

RULES: Final = load_queries("rule_relay")
TRIGGERS: Final = load_queries("trigger_relay")


class PostgresRuleRelayStore:
    """RuleRelayStore. The pool is the caller's; `resign` before closing it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._leading: Connection[Row] | None = None

    def lead(self) -> bool:
        """Leadership lasts as long as its session: a standby takes over when this process or its connection dies."""
        if self._leading is not None:
            return True
        connection = self._pool.getconn()
        try:
            leads = bool(RULES.try_lead(connection))
            connection.commit()  # a session's lock outlives the transaction
        except BaseException:
            self._pool.putconn(connection)
            raise
        if not leads:
            self._pool.putconn(connection)
            return False
        self._leading = connection
        return True

    def shards_waiting(self, limit: int, after: str = "") -> Sequence[str]:
        with transaction(self._pool) as connection:
            return [row["shard"] for row in RULES.find_waiting_shards(connection, limit=limit, after=after)]

    def take(self, shards: Sequence[str]) -> dict[str, int]:
        with transaction(self._pool) as connection:
            return {row["shard"]: row["fence"] for row in RULES.take_shards(connection, shards=list(shards))}

    def number(self, fences: Mapping[str, int], limit: int) -> int:
        with self._fenced(fences) as connection:
            count: int = RULES.number_commands(connection, shards=list(fences), limit=limit)
        return count

    def numbered(self, fences: Mapping[str, int], limit: int) -> Sequence[NumberedCommand]:
        with transaction(self._pool) as connection:
            rows = RULES.read_numbered(connection, shards=list(fences), limit=limit)
            return [
                NumberedCommand(row["command_id"], row["shard"], row["epoch"], row["number"], _command(row))
                for row in rows
            ]

    def mark_published(self, fences: Mapping[str, int], command_ids: Sequence[int]) -> None:
        with self._fenced(fences) as connection:
            RULES.mark_commands_published(connection, command_ids=list(command_ids))

    @contextmanager
    def _fenced(self, fences: Mapping[str, int]) -> Iterator[Connection[Row]]:
        """A transaction in which nobody can take these shards. Raises FencedError when somebody has."""
        with transaction(self._pool) as connection:
            rows = RULES.lock_fences(connection, shards=list(fences))
            held = {row["shard"]: row["fence"] for row in rows}
            lost = [shard for shard, fence in fences.items() if held.get(shard) != fence]
            if lost:
                raise FencedError(lost)
            yield connection

    def resign(self) -> None:
        """A standby may lead as soon as this returns; when the connection is broken, once the server sees its end."""
        if self._leading is not None:
            with suppress(psycopg.OperationalError):
                RULES.resign(self._leading)
                self._leading.commit()
            self._leading.close()  # ends the session, and its lock with it
            self._pool.putconn(self._leading)
            self._leading = None


def _command(row: Row) -> Command:
    if row["payload"] is not None:
        command: Command = Command.FromString(bytes(row["payload"]))
        return command
    rule = rule_message(row)
    if row["action"] == "create":
        return Command(create=CreateRule(rule=rule))
    return Command(remove=RemoveRule(rule=rule))


class PostgresTriggerRelayStore:
    """TriggerRelayStore."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @contextmanager
    def unpublished(self, limit: int) -> Iterator[PostgresTriggerWork]:
        with transaction(self._pool) as connection:
            rows = TRIGGERS.hold_unpublished(connection, limit=limit)
            yield PostgresTriggerWork(connection, [OutboxTrigger(**row) for row in rows])


class PostgresTriggerWork:
    """TriggerRelayWork over an open transaction."""

    def __init__(self, connection: Connection[Row], triggers: Sequence[OutboxTrigger]) -> None:
        self._connection = connection
        self.triggers = triggers

    def mark_published(self) -> None:
        ids = [trigger.trigger_id for trigger in self.triggers]
        TRIGGERS.mark_triggers_published(self._connection, trigger_ids=ids)
