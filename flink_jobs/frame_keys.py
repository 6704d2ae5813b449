"""The key of a frame from its first bytes: key_by calls this for every record, so a whole parse is the exception.

Protobuf writers put fields in order of their numbers, so the key stands in front: `feed` and `bucket` of a price
frame, the shard of a log record. Anything else in front gets a whole parse. A key that the rest of the frame
contradicts, or that is followed by rubbish, is the core's to refuse.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from google.protobuf.message import DecodeError

from contracts.frames_pb2 import PriceFrame, ShardLogRecord
from contracts.keys import bucket_shard

# Key of records that have none: no bucket or shard is called so.
UNREADABLE: Final = ""

_FIELD_1_BYTES: Final = 0x0A
_FIELD_2_BYTES: Final = 0x12
_FIELD_2_VARINT: Final = 0x10
_ONE_BYTE: Final = 0x80  # a varint below is its own value
_REMEMBERED: Final = 65_536

_bucket_shard = lru_cache(maxsize=_REMEMBERED)(bucket_shard)


def price_frame_key(frame: bytes) -> str:
    """Key of a `prices.v1` record, UNREADABLE when it is no price frame."""
    try:
        if frame[0] == _FIELD_1_BYTES and frame[1] < _ONE_BYTE:
            end = 2 + frame[1]
            bucket = frame[end + 1]
            if frame[end] == _FIELD_2_VARINT and bucket < _ONE_BYTE and end > 2:
                return _bucket_shard(frame[2:end].decode(), bucket)
    except (IndexError, UnicodeDecodeError):
        pass
    return _parse_price_frame_key(frame)


def _parse_price_frame_key(frame: bytes) -> str:
    try:
        parsed = PriceFrame.FromString(frame)
    except DecodeError:
        return UNREADABLE
    return _bucket_shard(parsed.feed, parsed.bucket) if parsed.feed else UNREADABLE


def shard_log_key(record: bytes) -> str:
    """Shard of a `shard-log.v1` record, UNREADABLE when it is none."""
    try:
        if record[0] == _FIELD_1_BYTES or record[0] == _FIELD_2_BYTES:
            at = 1
            while record[at] >= _ONE_BYTE:
                at += 1
            length = record[at + 2]
            if record[at + 1] == _FIELD_1_BYTES and 0 < length < _ONE_BYTE and at + 3 + length <= len(record):
                return record[at + 3 : at + 3 + length].decode()
    except (IndexError, UnicodeDecodeError):
        pass
    return _parse_shard_log_key(record)


def _parse_shard_log_key(record: bytes) -> str:
    try:
        parsed = ShardLogRecord.FromString(record)
    except DecodeError:
        return UNREADABLE
    kind = parsed.WhichOneof("kind")
    shard: str = getattr(parsed, kind).shard if kind else UNREADABLE
    return shard
