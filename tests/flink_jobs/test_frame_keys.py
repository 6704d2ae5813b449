"""The key of a frame from its first bytes: the same as of the whole frame, and never an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.frames_pb2 import CommandFrame, MetricFrame, PriceFrame, ShardLogRecord
from contracts.keys import bucket_shard, hot_shard
from flink_jobs.frame_keys import UNREADABLE, price_frame_key, shard_log_key

FEEDS = st.sampled_from(["main", "crypto", "börse", "x" * 40])


@given(FEEDS, st.integers(0, 300), st.lists(st.text(min_size=1, max_size=6), max_size=5))
def test_a_price_frame_s_key_is_its_bucket_s(feed: str, bucket: int, symbols: list[str]) -> None:
    frame = PriceFrame(feed=feed, bucket=bucket, lease=3, symbols=symbols)
    assert price_frame_key(frame.SerializeToString()) == bucket_shard(feed, bucket)


@pytest.mark.parametrize("rows", [0, 1, 40, 5_000])
def test_a_log_record_s_key_is_its_shard_of_either_kind(rows: int) -> None:
    for shard in (bucket_shard("main", 3), hot_shard("main", "AAPL", 4, 1), "s" * 200):
        metrics = MetricFrame(shard=shard, epoch=1, event_time_ms=bytes(8 * rows))
        assert shard_log_key(ShardLogRecord(metrics=metrics).SerializeToString()) == shard
        commands = CommandFrame(shard=shard, epoch=1)
        assert shard_log_key(ShardLogRecord(commands=commands).SerializeToString()) == shard


def test_fields_in_another_order_are_found_by_a_whole_parse() -> None:
    tail = PriceFrame(lease=9).SerializeToString()
    assert price_frame_key(tail + PriceFrame(feed="main", bucket=5).SerializeToString()) == bucket_shard("main", 5)


@given(st.binary(max_size=80))
def test_rubbish_is_unreadable_or_some_key_but_never_an_error(record: bytes) -> None:
    assert isinstance(shard_log_key(record), str)
    if len(record) < 2 or record[0] != 0x0A:  # else it may name a bucket, which costs a search for its key
        assert isinstance(price_frame_key(record), str)


@pytest.mark.parametrize(
    "record", [b"", b"\x0a", b"\x0a\x04mai", b"\x0a\x02\xff\xfe\x10\x01", b"\x12\xff\xff", b"{}", b"\x0a\x00"]
)
def test_what_is_no_frame_is_unreadable(record: bytes) -> None:
    assert price_frame_key(record) == UNREADABLE
    assert shard_log_key(record) == UNREADABLE
