"""Dead letters of the jobs: a whole record that a core refused, beside its neighbours that went on."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from contracts.dead_letter import DeadLetter, Reason, dead_letter

# JSON readers with floats keep 53 bits of an integer.
_POSITION_BYTES: Final = 6


def refused_record(source_topic: str, detail: str, record: bytes) -> DeadLetter:
    """Dead letter of a record of a job's input.

    A Python function in Flink sees no offset, so `position` is a 48-bit hash of the record: a replay after a crash
    names the same record the same way.
    """
    position = int.from_bytes(blake2b(record, digest_size=_POSITION_BYTES).digest(), "big")
    return dead_letter(
        Reason.BAD_FRAME, detail, feed="", symbol=None, source=source_topic, position=position, raw=record
    )
