"""The Kafka topics: names, who writes and reads them, settings. Names are prefixed per environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Topic:
    """One topic. `config` is Kafka's topic configuration as text values."""

    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)

    def named(self, prefix: str) -> str:
        """Its name in an environment."""
        return f"{prefix}{self.name}"


# The largest record that any writer hands over and any reader fetches: a frame of a catch-up, a dead letter with its
# raw bytes. A broker's own bound is 1 MiB, and it counts a batch with its headers, so a topic takes a little more.
MAX_RECORD_BYTES: Final = 8_000_000
MAX_BATCH_BYTES: Final = 8 * 2**20

# Record timestamps are event times: time retention would delete a replay of old prices at once, and a
# segment per week of event time would make thousands of segments. See DESIGN, "Kafka topics".
_EVENT_TIMED: Final = {
    "retention.ms": "-1",
    "segment.ms": str(2**63 - 1),
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "min.insync.replicas": "1",
    "max.message.bytes": str(MAX_BATCH_BYTES),
}

TICKS: Final = Topic("ticks.v1", 1, _EVENT_TIMED)
PRICES: Final = Topic("prices.v1", 4, _EVENT_TIMED)
SHARD_LOG: Final = Topic("shard-log.v1", 4, _EVENT_TIMED)
CANDIDATES: Final = Topic("candidates.v1", 4, _EVENT_TIMED)
AUDIT: Final = Topic("audit.v1", 1, _EVENT_TIMED)
DEAD_LETTERS: Final = Topic("dead-letters.v1", 1, _EVENT_TIMED)
TRIGGERS: Final = Topic("triggers.v1", 2, _EVENT_TIMED)

ALL_TOPICS: Final = (TICKS, PRICES, SHARD_LOG, CANDIDATES, AUDIT, DEAD_LETTERS, TRIGGERS)
