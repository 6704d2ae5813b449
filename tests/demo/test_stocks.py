"""The splits named in the demo are those that the printed prices show, and the script is the same each time."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import pairwise

from contracts.prices import parse_price
from stack.demo.script import demo_operations
from stack.demo.stocks import DECIMALS, SPLITS, SYMBOLS, closes_by_day
from stack.replay.recording import write_recording
from stack.replay.scenario import Cancel, Create, read_scenario


def _halvings() -> set[tuple[str, str]]:
    found = set()
    for symbol in SYMBOLS:
        series = [(day, closes[symbol]) for day, closes in closes_by_day().items() if symbol in closes]
        for (_, before), (day, after) in pairwise(series):
            if Decimal("0.45") < after / before < Decimal("0.56"):
                found.add((symbol, day.isoformat()))
    return found


def test_prices_halve_on_the_days_of_the_splits_and_once_without_one() -> None:
    splits = {(split.symbol, split.day.isoformat()) for split in SPLITS}
    # the day on which AAPL really lost half of its value is no split, and must fire
    assert _halvings() == splits | {("AAPL", "2000-09-29")}


def test_every_close_is_an_exact_price_of_its_instrument() -> None:
    for closes in closes_by_day().values():
        for close in closes.values():
            assert parse_price(str(close), DECIMALS) > 0


def test_the_script_covers_every_window_and_direction_of_daily_prices() -> None:
    creates = [operation for operation in demo_operations() if isinstance(operation, Create)]
    kinds = Counter((create.window, create.direction.value) for create in creates)
    assert set(kinds) == {
        *((window, direction) for window in ("1d", "1w", "1mo", "1y") for direction in ("UP", "DOWN", "EITHER")),
        (None, "ABOVE"),
        (None, "BELOW"),
    }
    assert len(creates) > 200
    assert len({create.user for create in creates}) > 2
    assert sum(isinstance(operation, Cancel) for operation in demo_operations()) > 10


def test_a_recording_of_the_script_reads_back_as_the_same_operations(tmp_path) -> None:
    operations = tuple(demo_operations())
    write_recording(tmp_path / "demo.jsonl", operations)
    assert read_scenario(tmp_path / "demo.jsonl").operations == operations
