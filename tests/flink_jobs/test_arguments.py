"""A wrong command line ends before anything is submitted, with one sentence."""

from __future__ import annotations

import pytest

from flink_jobs.arguments import StartAt, parse_arguments

GOOD = ["--bootstrap", "127.0.0.1:9092", "--epoch", "3"]


def test_defaults_are_left_to_the_cluster() -> None:
    arguments = parse_arguments("rolling-metrics", GOOD)
    assert (arguments.bootstrap, arguments.epoch, arguments.topic_prefix) == ("127.0.0.1:9092", 3, "")
    assert (arguments.parallelism, arguments.job_name, arguments.start) == (None, None, StartAt("earliest"))
    assert arguments.checkpoint_interval_ms == 5_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", StartAt("earliest")),
        ("timestamp:1700000000000", StartAt("timestamp", timestamp_ms=1_700_000_000_000)),
        ("offsets:1=40,0=12", StartAt("offsets", offsets=((0, 12), (1, 40)))),
    ],
)
def test_where_a_job_without_state_begins(text: str, start: StartAt) -> None:
    assert parse_arguments("rolling-metrics", [*GOOD, "--from", text]).start == start


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["--epoch", "0"], "'0' is not an epoch from 1 to"),
        (["--epoch", "٣"], "is not an epoch"),
        (["--parallelism", "129"], "'129' is not a parallelism from 1 to 128"),
        (["--bootstrap", " "], "must not be empty"),
        (["--topic-prefix", "a/b"], "'a/b': a topic prefix has at most 60"),
        (["--from", "latest"], "'latest': say earliest, timestamp:EPOCH_MS or offsets:"),
        (["--from", "offsets:0=1,0=2"], "with each partition once"),
        (["--checkpoint-interval-ms", "5s"], "'5s' is not a checkpoint interval"),
    ],
)
def test_a_wrong_argument_is_named(wrong: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments("rolling-metrics", [*GOOD, *wrong])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err.replace("\n", " ")
