"""Buckets, shards and their Kafka/Flink keys: which record goes where, the same in every process and language.

A bucket is (feed, stable hash of the symbol mod B). A shard is the matcher's key: the bucket's own shard,
or one of the S shards of a hot symbol. Key texts carry a suffix searched so that the keys of one feed spread
evenly over Kafka partitions (murmur2, as the Java producer's default) and over Flink's key groups.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

MAX_PARALLELISM: Final = 128  # Flink's key groups; part of the state's schema
SPREAD: Final = 16  # keys are spread evenly modulo this many partitions and key-group ranges
_WORD: Final = 0xFFFFFFFF


def stable_hash(text: str) -> int:
    """64-bit hash of a text that never changes (BLAKE2b, 8 bytes, little-endian)."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def bucket_of(symbol: str, buckets: int) -> int:
    """Bucket of a canonical symbol."""
    return stable_hash(symbol) % buckets


def virtual_shard_of(alert_id: int, shards: int) -> int:
    """Which of a hot symbol's shards an alert belongs to."""
    return int.from_bytes(blake2b(alert_id.to_bytes(8, "little"), digest_size=8).digest(), "little") % shards


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 as an unsigned 32-bit value (org.apache.kafka.common.utils.Utils.murmur2)."""
    m, r = 0x5BD1E995, 24
    h = (0x9747B28C ^ len(data)) & _WORD
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & _WORD
        k = (k ^ k >> r) * m & _WORD
        h = (h * m & _WORD) ^ k
    tail = data[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & _WORD
    h = (h ^ h >> 13) * m & _WORD
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Partition that Kafka's default partitioner gives a keyed record."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def key_group_of(key: str) -> int:
    """Flink's key group (of MAX_PARALLELISM) of a STRING key of a PyFlink job.

    PyFlink's key_by wraps every key in a Row of one field, so Flink hashes Row.hashCode(), which is
    String.hashCode() + 62, by murmurHash.
    """
    h = 0
    for unit in _utf16(key):
        h = (31 * h + unit) & _WORD
    return _flink_murmur((h + 62) & _WORD) % MAX_PARALLELISM


def _utf16(key: str) -> list[int]:
    raw = key.encode("utf-16-le")
    return [raw[i] | raw[i + 1] << 8 for i in range(0, len(raw), 2)]


def _flink_murmur(code: int) -> int:
    """org.apache.flink.util.MathUtils.murmurHash of a 32-bit value, as a non-negative int."""
    code = code * 0xCC9E2D51 & _WORD
    code = (code << 15 | code >> 17) & _WORD
    code = code * 0x1B873593 & _WORD
    code = (code << 13 | code >> 19) & _WORD
    code = (code * 5 + 0xE6546B64) & _WORD
    code ^= 4
    code = (code ^ code >> 16) * 0x85EBCA6B & _WORD
    code = (code ^ code >> 13) * 0xC2B2AE35 & _WORD
    code ^= code >> 16
    if code < 1 << 31:
        return code
    return 0 if code == 1 << 31 else (1 << 32) - code


@lru_cache(maxsize=65_536)
def _spread_key(stem: str, slot: int) -> str:
    for attempt in range(100_000):
        key = f"{stem}~{attempt:x}"
        if (murmur2(key.encode()) & 0x7FFFFFFF) % SPREAD == slot and key_group_of(
            key
        ) * SPREAD // MAX_PARALLELISM == slot:
            return key
    raise AssertionError(f"no key for {stem!r} in slot {slot}")


def bucket_shard(feed: str, bucket: int) -> str:
    """Key text of a bucket, which is also its own shard's."""
    return _spread_key(f"{feed}/{bucket}", bucket % SPREAD)


def bucket_of_shard(key: str) -> tuple[str, int]:
    """Feed and bucket whose own shard has this key text. Raises ValueError when none has."""
    feed, _, number = key.rpartition("~")[0].rpartition("/")
    if not number.isdecimal() or bucket_shard(feed, int(number)) != key:
        raise ValueError(f"{key!r} is no bucket's key")
    return feed, int(number)


def hot_shard(feed: str, symbol: str, shards: int, index: int) -> str:
    """Key text of shard `index` of `shards` of a hot symbol."""
    return _spread_key(f"{feed}/{symbol}/{shards}.{index}", (stable_hash(symbol) + index) % SPREAD)


def shard_of(feed: str, symbol: str, buckets: int, alert_id: int, shards: int) -> str:
    """Shard of an alert when its symbol has `shards` virtual shards (1: the bucket's own)."""
    if shards == 1:
        return bucket_shard(feed, bucket_of(symbol, buckets))
    return hot_shard(feed, symbol, shards, virtual_shard_of(alert_id, shards))
