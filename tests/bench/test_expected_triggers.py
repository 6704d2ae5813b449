"""The bench's own reckoning of what must fire agrees with the scenarios' oracle on the bench's own kind of load."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.end_to_end import EndToEndLoad, make_alerts
from bench.expected_triggers import BenchAlert, expected_triggers, series_by_symbol
from bench.tick_generator import DECIMALS, LoadPlan, symbol_name, walk
from contracts.prices import format_price
from tests.scenarios.oracle import run

START_MS = 1_767_225_600_000
SYMBOLS = 6


@pytest.mark.parametrize("seed", range(4))
def test_reckoning_agrees_with_the_oracle(seed: int) -> None:
    load = EndToEndLoad(symbols=SYMBOLS, alerts=150, seed=seed, buckets=2)
    plan = LoadPlan("", "", "bench", SYMBOLS, 1, 1.0, seed, 1, "")
    index, price = walk(plan, 900)
    times = START_MS + 700 * np.arange(len(index))
    alerts = make_alerts(load)
    lines = [{"op": "instrument", "symbol": symbol_name(i), "decimals": DECIMALS} for i in range(SYMBOLS)]
    for number, alert in enumerate(alerts):
        change = {"kind": "change", "window": alert.window, "bps": alert.threshold}
        level = {"kind": "price", "target": format_price(alert.threshold, DECIMALS)}
        create = {"op": "create", "id": str(number), "user": "u", "symbol": alert.symbol, "at": START_MS - 1}
        lines.append({**create, "direction": alert.direction, **(change if alert.window else level)})
    sequence = dict.fromkeys(range(SYMBOLS), 0)
    for i, scaled, at_ms in zip(index.tolist(), price.tolist(), times.tolist(), strict=True):
        sequence[i] += 1
        tick = {"op": "tick", "symbol": symbol_name(i), "ts": at_ms, "seq": sequence[i]}
        lines.append({**tick, "price": format_price(scaled, DECIMALS)})

    rules = [
        BenchAlert(number, int(alert.symbol[1:]), alert.window, alert.direction, alert.threshold)
        for number, alert in enumerate(alerts)
    ]
    rows = run([json.dumps(line) for line in lines])
    fired = {int(row["id"]): row["event_time"] for row in rows if row.get("status") == "TRIGGERED"}
    assert expected_triggers(rules, series_by_symbol(index, times, price)) == fired
    assert len(fired) > 30
