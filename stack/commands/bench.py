"""`./alerts bench NAME`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import orjson
import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def bench() -> None:
    """Measure a part or the whole; the last line on stdout is JSON."""


@app.command("end-to-end")
def end_to_end(
    seconds: Annotated[float, typer.Option(min=5.0, help="Length of the measurement, after the warm-up.")] = 60.0,
    rate: Annotated[int, typer.Option(min=1, help="Ticks a second.")] = 5_000,
    symbols: Annotated[int, typer.Option(min=1, max=999_999)] = 20_000,
    alerts: Annotated[int, typer.Option(min=1)] = 100_000,
) -> None:
    """The whole path: a raw tick's publication to the commit of TRIGGERED."""
    from bench.end_to_end import EndToEndLoad, measure_end_to_end  # noqa: PLC0415

    _tell(measure_end_to_end(EndToEndLoad(seconds=seconds, rate=rate, symbols=symbols, alerts=alerts)))


@app.command("feeds")
def feeds() -> None:
    """JSON ticks to price frames, on one core."""
    from bench.feeds_core import measure_feeds_core  # noqa: PLC0415

    _tell(measure_feeds_core())


@app.command("rolling")
def rolling(
    history: Annotated[int, typer.Option(min=0, help="Ticks of history behind the cursors.")] = 6_000_000,
    ticks: Annotated[int, typer.Option(min=2, help="Two thirds at 64 a frame, one at 16.")] = 1_200_000,
    symbols: Annotated[int, typer.Option(min=16, max=100_000)] = 20_000,
    parallelism: Annotated[int, typer.Option(min=1, max=16)] = 2,
    core_profile: Annotated[bool, typer.Option(help="The core alone, and where its time goes, on stderr.")] = False,
) -> None:
    """Price frames in Kafka to metrics in the shard log through the Flink job; bytes a tick of the history."""
    from bench.rolling import core_load, measure_rolling  # noqa: PLC0415
    from bench.rolling_core import measure_rolling_core  # noqa: PLC0415
    from bench.rolling_load import RollingLoad  # noqa: PLC0415

    load = RollingLoad(
        symbols=symbols, history_ticks=history, large_ticks=2 * ticks // 3, small_ticks=ticks - 2 * ticks // 3
    )
    if core_profile:
        _tell({"bench": "rolling-core", **measure_rolling_core(core_load(load), profile=True)})
    else:
        _tell(measure_rolling(load, parallelism))


@app.command("matcher")
def matcher(
    rules: Annotated[int, typer.Option(min=1_000)] = 10_000_000,
    storm_rules: Annotated[int, typer.Option(min=1, help="That one tick crosses at once.")] = 1_000_000,
) -> None:
    """Rules in and metric frames to candidates in the matcher's cores, on one core of the machine."""
    from bench.matcher_core import MatcherCoreLoad, measure_matcher_core  # noqa: PLC0415

    _tell({"bench": "matcher", **measure_matcher_core(MatcherCoreLoad(rules=rules, storm_rules=storm_rules))})


@app.command("finalizer")
def finalizer(
    burst: Annotated[int, typer.Option(min=1, help="Claims that arrive at once.")] = 1_000_000,
    rows: Annotated[int, typer.Option(min=0, help="ACTIVE alerts in the table that nobody claims.")] = 100_000,
    rule_relay: Annotated[bool, typer.Option(help="Let the rule relay publish the remove commands meanwhile.")] = True,
) -> None:
    """A burst of claims to TRIGGERED alerts with their outbox rows, on a broker and a database of its own."""
    from bench.finalizer import FinalizerLoad, measure_finalizer  # noqa: PLC0415

    _tell(measure_finalizer(FinalizerLoad(burst=burst, rows=rows, rule_relay=rule_relay)))


@app.command("races")
def races(
    races: Annotated[int, typer.Option(min=1, help="Alerts that are raced for.")] = 1_000_000,
    seed: Annotated[int, typer.Option()] = 1,
) -> None:
    """Cancel, trigger, expire and pause race for the same alerts on a database of its own: each has one end."""
    from bench.races import measure_races  # noqa: PLC0415

    _tell(measure_races(races, seed))


def _tell(figures: Mapping[str, Any]) -> None:
    sys.stdout.write(orjson.dumps(figures).decode() + "\n")
