"""Keys: the same placement as Kafka's and Flink's own code, and an even spread."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as peer_murmur2

from contracts import keys


@given(st.binary(max_size=64))
def test_murmur2_equals_another_client_s(data: bytes) -> None:
    assert keys.murmur2(data) == peer_murmur2(data) & 0xFFFFFFFF


def test_hashes_never_change() -> None:
    """Written state and topics depend on these values."""
    assert keys.stable_hash("AAPL") == 0xF4EBBFF672FF4A6B
    assert [keys.bucket_of(symbol, 16) for symbol in ("AAPL", "BRK.B", "BTC-USD")] == [11, 0, 11]
    assert keys.bucket_shard("main", 0) == "main/0~2"
    assert keys.bucket_shard("main", 15) == "main/15~a6"


def test_buckets_spread_evenly_over_partitions_and_key_groups() -> None:
    buckets = [keys.bucket_shard("main", bucket) for bucket in range(16)]
    for partitions in (1, 2, 4, 8, 16):
        assert set(Counter(keys.partition_of(k.encode(), partitions) for k in buckets).values()) == {16 // partitions}
    for parallelism in (1, 2, 4, 8):
        operators = Counter(keys.key_group_of(k) * parallelism // keys.MAX_PARALLELISM for k in buckets)
        assert set(operators.values()) == {16 // parallelism}


@pytest.mark.parametrize(("feed", "bucket"), [("main", 0), ("main", 15), ("a/b~c", 3), ("börse", 127)])
def test_a_bucket_is_found_from_its_key(feed: str, bucket: int) -> None:
    assert keys.bucket_of_shard(keys.bucket_shard(feed, bucket)) == (feed, bucket)


@pytest.mark.parametrize("key", ["", "main", "main/3", "main/3~zz", "main/x~0", keys.hot_shard("main", "AAPL", 4, 1)])
def test_what_is_no_bucket_s_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="no bucket's key"):
        keys.bucket_of_shard(key)


@given(st.integers(1, 2**63 - 1), st.integers(2, 64))
def test_an_alert_of_a_hot_symbol_has_one_shard(alert_id: int, shards: int) -> None:
    shard = keys.shard_of("main", "AAPL", 16, alert_id, shards)
    assert shard == keys.hot_shard("main", "AAPL", shards, keys.virtual_shard_of(alert_id, shards))
    assert keys.shard_of("main", "AAPL", 16, alert_id, 1) == keys.bucket_shard("main", keys.bucket_of("AAPL", 16))
