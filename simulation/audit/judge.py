"""The scenario oracle, asked about one bucket: which ticks are emitted, and what each rule does from its place on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from types import ModuleType
from typing import Any

from contracts import frames_pb2 as pb
from contracts.vocabulary import WINDOWS
from simulation.audit.logs import PriceEntry, Row
from stack.settings import REPOSITORY


@cache
def load_oracle() -> ModuleType:
    """tests/scenarios/oracle.py, which shares no code with the product."""
    spec = importlib.util.spec_from_file_location("scenario_oracle", REPOSITORY / "tests" / "scenarios" / "oracle.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


Routed = tuple[str, int, int]  # symbol, version, phase


@dataclass(slots=True)
class Installed:
    """A rule in the index from tick number `first_tick` of its symbol on, up to `end_tick` (None: to the end)."""

    alert_id: int
    version: int
    shard: str
    rule: pb.Rule
    first_tick: int
    end_tick: int | None = None


@dataclass(frozen=True, slots=True)
class Crossing:
    """The first one of a rule within its lifetime, with the evidence that it must carry."""

    event_time_ms: int
    evidence: Mapping[str, Any]


class BucketJudge:
    """One bucket's entries through the oracle. `emitted`: per symbol (time, scaled price, sequence), in order."""

    def __init__(self, decimals: Mapping[str, int], entries: Sequence[PriceEntry]) -> None:
        self._decimals = decimals
        self._entries = entries
        self.emitted: dict[str, list[tuple[int, int, int]]] = {}
        self.routed_at: dict[Routed, int] = {}  # ticks emitted before a place of a symbol's routing
        self.counts: dict[str, int] = {}
        self.frontier_ms = 0
        self._play(())

    def crossings(self, rules: Sequence[Installed]) -> dict[tuple[int, int, str], Crossing]:
        """(alert, version, shard) -> its first crossing."""
        return self._play(rules) if rules else {}

    def _play(self, rules: Sequence[Installed]) -> dict[tuple[int, int, str], Crossing]:
        oracle = _oracle_of(rules, self._decimals)
        refused = control_number = 0
        for entry in self._entries:
            if isinstance(entry, int):
                refused += entry
            elif isinstance(entry, Row):
                oracle.op_tick(self._tick(entry))
            else:
                if entry.control_number:
                    if entry.control_number <= control_number:
                        continue
                    control_number = entry.control_number
                self._control(oracle, entry)
        if not rules:
            self.counts = {**oracle.counts, "rejected": oracle.counts["rejected"] + refused}
            self.frontier_ms = oracle.frontier
            for name, state in oracle.symbols.items():
                scale = 10 ** self._decimals[name]
                self.emitted[name] = [(tick.ts, int(tick.price * scale), tick.seq or 0) for tick in state.emitted]
        crossings: dict[tuple[int, int, str], Crossing] = oracle.crossings
        return crossings

    def _tick(self, row: Row) -> dict[str, Any]:
        scale = 10 ** self._decimals.get(row.symbol, 0)
        text = load_oracle().number(Fraction(row.price_scaled, scale)) if row.price_scaled else "0"
        tick = {"op": "tick", "symbol": row.symbol, "ts": row.event_time_ms, "price": text, "session": row.session}
        return {**tick, "seq": row.sequence} if row.sequence else tick

    def _control(self, oracle: Any, control: pb.Control) -> None:
        match control.WhichOneof("kind"):
            case "heartbeat":
                oracle.op_heartbeat({"ts": control.heartbeat.frontier_ms})
            case "flush":
                oracle.finish()
            case "settings":
                settings = control.settings
                given: dict[str, Any] = {"reference_age_ms": dict(settings.reference_age_ms)}
                if settings.HasField("reorder_ms"):
                    given["reorder_ms"] = settings.reorder_ms
                if settings.HasField("max_ahead_ms"):
                    given["max_ahead_ms"] = settings.max_ahead_ms or None
                oracle.op_settings(given)
            case "instrument":
                if control.instrument.symbol not in oracle.symbols:
                    oracle.op_instrument({"symbol": control.instrument.symbol, "decimals": control.instrument.decimals})
            case "split":
                split = control.split
                oracle.op_split(
                    {
                        "symbol": split.symbol, "effective_from": split.effective_from_ms,
                        "new_shares": split.new_shares, "old_shares": split.old_shares,
                    }
                )  # fmt: skip
            case "resume":
                oracle.op_resume({"symbol": control.resume.symbol})
            case "routing":
                state = oracle.symbols.get(control.routing.symbol)
                key = control.routing.symbol, control.routing.version, control.routing.phase
                self.routed_at.setdefault(key, len(state.emitted) if state else 0)


def _oracle_of(rules: Sequence[Installed], decimals: Mapping[str, int]) -> Any:
    module = load_oracle()

    class Judge(module.Oracle):  # type: ignore[name-defined,misc]
        """Alerts wait at their place instead of being created there, and one crossing doesn't end the others'."""

        def __init__(self) -> None:
            super().__init__()
            self.crossings: dict[tuple[int, int, str], Crossing] = {}
            self.watching: dict[str, list[tuple[Installed, Any]]] = {}
            for installed in rules:
                watched = self.watching.setdefault(installed.rule.symbol, [])
                watched.append((installed, _alert(module, installed, decimals)))

        def candidates(self, name: str, tick: Any, kind: str, window: str | None) -> Iterator[Any]:
            index = len(self.symbols[name].emitted) - 1
            for installed, alert in self.watching.get(name, ()):
                if (
                    alert.status == "ACTIVE" and alert.kind == kind and alert.window == window
                    and installed.first_tick <= index
                    and (installed.end_tick is None or index < installed.end_tick)
                    and alert.active_from <= tick.ts < alert.expires_at
                ):  # fmt: skip
                    yield alert

        def trigger(self, alert: Any, tick: Any, **evidence: object) -> None:
            super().trigger(alert, tick, **evidence)
            self.crossings[alert.id] = Crossing(tick.ts, alert.evidence)

    return Judge()


def _alert(module: ModuleType, installed: Installed, decimals: Mapping[str, int]) -> Any:
    rule = installed.rule
    change = rule.kind == pb.CHANGE
    return module.Alert(
        id=(installed.alert_id, installed.version, installed.shard), symbol=rule.symbol,
        kind="change" if change else "price", window=WINDOWS[rule.window] if change else None,
        direction=pb.Direction.Name(rule.direction), bps=rule.threshold if change else None,
        target=None if change else Fraction(rule.threshold, 10 ** decimals[rule.symbol]), created_at=rule.created_at_ms,
        expires_at=rule.expires_at_ms, active_from=rule.created_at_ms,
    )  # fmt: skip
