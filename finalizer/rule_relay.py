"""Rule commands from Postgres into the shard log: numbered under the shard's fence, then published in that order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import structlog

from contracts.frames_pb2 import Command, CommandFrame, Rule, ShardLogRecord
from finalizer.failpoints import Failpoint, survive
from finalizer.ports import FencedError, NumberedCommand, RuleRelayStore
from ports.message_log import LogWriter

MAX_SHARDS_A_STEP: Final = 2_000
MAX_COMMANDS_A_STEP: Final = 5_000
MAX_COMMANDS_A_FRAME: Final = 1_000  # about 60 kB
MAX_RULES_A_FRAME: Final = 4_000  # a page of a rebuild carries many

log = structlog.get_logger()


class RuleRelay:
    """Service. A crash between any two effects publishes the same numbers again, which readers skip."""

    def __init__(self, store: RuleRelayStore, writer: LogWriter, *, shard_log: str, fail: Failpoint = survive) -> None:
        """shard_log: the topic's name in this environment."""
        self._store, self._writer, self._fail, self._topic = store, writer, fail, shard_log
        self._fences: dict[str, int] = {}
        self._leading = False
        self._after = ""  # the last shard of a step that could not take all that waited
        # Some may have numbers already that the last read, or the relay before this one, did not get to: they go first,
        # as a read is in order of shard and new numbers of early ones would come before them for ever.
        self._cut_off = True
        self._published = 0
        self._fenced = 0

    def step(self) -> bool:
        self._leading = self._store.lead()
        if not self._leading:
            return False
        shards = self._next_shards()
        if not shards:
            return False
        try:
            return self._publish(shards)
        except FencedError as error:
            log.warning("fenced out, standing by", error=str(error))
            self._fenced += 1
            self._fences = {}
            self._store.resign()
            return False

    def _next_shards(self) -> list[str]:
        """At most MAX_SHARDS_A_STEP; when more wait, the next step goes on behind these."""
        shards = list(self._store.shards_waiting(MAX_SHARDS_A_STEP, self._after))
        if self._after and len(shards) < MAX_SHARDS_A_STEP:
            rest = self._store.shards_waiting(MAX_SHARDS_A_STEP - len(shards))
            shards += [shard for shard in rest if shard <= self._after]
        self._after = shards[-1] if len(shards) == MAX_SHARDS_A_STEP else ""
        return shards

    def _publish(self, shards: Sequence[str]) -> bool:
        fresh = [shard for shard in shards if shard not in self._fences]
        if fresh:
            self._fences |= self._store.take(fresh)
        fences = {shard: self._fences[shard] for shard in shards}
        commands = self._store.numbered(fences, MAX_COMMANDS_A_STEP) if self._cut_off else ()
        if not commands:
            self._store.number(fences, MAX_COMMANDS_A_STEP)
            self._fail("numbered")
            commands = self._store.numbered(fences, MAX_COMMANDS_A_STEP)
        self._cut_off = len(commands) == MAX_COMMANDS_A_STEP
        if not commands:
            return False
        for frame in frames_of(commands):
            record = ShardLogRecord(commands=frame)
            newest_ms = max(map(time_of, frame.commands))
            self._writer.append(self._topic, frame.shard.encode(), record.SerializeToString(), newest_ms)
        self._fail("appended")
        self._writer.flush()
        self._fail("flushed")
        self._store.mark_published(fences, [command.command_id for command in commands])
        self._fail("marked")
        self._published += len(commands)
        return True

    def detail(self) -> dict[str, Any]:
        return {
            "leading": self._leading,
            "commands_published": self._published,
            "shards": len(self._fences),
            "fenced": self._fenced,
        }

    def close(self) -> None:
        self._store.resign()
        self._writer.close()


def rule_of(command: Command) -> Rule:
    """The rule that a create or remove carries."""
    return command.create.rule if command.WhichOneof("kind") == "create" else command.remove.rule


def time_of(command: Command) -> int:
    """Event time in ms that a command's record is stamped with."""
    match command.WhichOneof("kind"):
        case "create":
            return command.create.rule.created_at_ms
        case "remove":
            return command.remove.rule.created_at_ms
        case "assert_rules":
            return max((rule.created_at_ms for rule in command.assert_rules.rules), default=0)
        case "begin_rebuild":
            return command.begin_rebuild.event_time_ms
        case _:
            return command.end_rebuild.event_time_ms


def frames_of(commands: Sequence[NumberedCommand]) -> Iterator[CommandFrame]:
    """Frames of consecutive numbers of one shard and epoch, at most MAX_COMMANDS_A_FRAME and MAX_RULES_A_FRAME each."""
    frame: CommandFrame | None = None
    rules = 0
    for numbered in commands:
        mine = max(1, len(numbered.command.assert_rules.rules))
        follows = (
            frame is not None
            and (frame.shard, frame.epoch) == (numbered.shard, numbered.epoch)
            and frame.first_number + len(frame.commands) == numbered.number
            and len(frame.commands) < MAX_COMMANDS_A_FRAME
            and rules + mine <= MAX_RULES_A_FRAME
        )
        if frame is None or not follows:
            if frame is not None:
                yield frame
            rules = 0
            frame = CommandFrame(shard=numbered.shard, epoch=numbered.epoch, first_number=numbered.number)
        frame.commands.append(numbered.command)
        rules += mine
    if frame is not None:
        yield frame
