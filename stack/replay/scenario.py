"""A scenario file (JSON lines, tests/scenarios/README.md) as typed operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from contracts.event_time import parse_event_time
from contracts.vocabulary import WINDOWS, Direction, Kind


class ScenarioError(ValueError):
    """A scenario that can't be played; says in which file and line, and why."""

    def __init__(self, problem: str, path: str, line: int) -> None:
        super().__init__(f"{path}, line {line}: {problem}")
        self.problem, self.path, self.line = problem, path, line


@dataclass(frozen=True, slots=True)
class Settings:
    """What is absent stays as it is; a window that isn't named keeps its age."""

    reorder_ms: int | None = None
    reference_age_ms: Mapping[str, int] = field(default_factory=dict)
    max_ahead_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Instrument:
    symbol: str
    decimals: int


@dataclass(frozen=True, slots=True)
class Tick:
    """As the feed said it: anything but the symbol may be rubbish, which is the gateway's to judge."""

    symbol: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    frontier_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    """`bps` and `window` for a change, `target` (decimal text) for a price."""

    id: str
    user: str
    symbol: str
    kind: Kind
    direction: Direction
    window: str | None = None
    bps: int | None = None
    target: str | None = None
    created_at_ms: int | None = None
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    id: str


@dataclass(frozen=True, slots=True)
class Split:
    symbol: str
    new_shares: int
    old_shares: int
    effective_from_ms: int


@dataclass(frozen=True, slots=True)
class Resume:
    symbol: str


Operation = Settings | Instrument | Tick | Heartbeat | Create | Cancel | Split | Resume


@dataclass(frozen=True)
class Scenario:
    """A name for people and the operations in the order of the log."""

    name: str
    operations: tuple[Operation, ...]


def read_scenario(path: Path) -> Scenario:
    """Raises ScenarioError on the first line that is no operation, OSError when there is no such file."""
    return parse_scenario(path.stem, path.read_bytes().splitlines(), str(path))


def parse_scenario(name: str, lines: Iterable[bytes], path: str = "scenario") -> Scenario:
    """Operations of JSON lines; empty ones and those that begin with `#` are skipped."""
    operations = []
    names = _Names()
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        try:
            operation = parse_operation(orjson.loads(text))
            names.check(operation)
        except KeyError as error:
            raise ScenarioError(f"field {error} is missing", path, number) from None
        except (ValueError, TypeError, AttributeError) as error:
            raise ScenarioError(f"not playable: {error}", path, number) from None
        operations.append(operation)
    return Scenario(name, tuple(operations))


def parse_operation(op: Mapping[str, Any]) -> Operation:  # noqa: PLR0911  (one row a kind)
    """One operation of its JSON object. Raises KeyError, ValueError or TypeError."""
    match op["op"]:
        case "tick":
            fields = {name: op[name] for name in ("ts", "price", "seq", "session") if name in op}
            return Tick(str(op["symbol"]), fields)
        case "heartbeat":
            return Heartbeat(parse_event_time(op["ts"]))
        case "create":
            return _parse_create(op)
        case "cancel":
            return Cancel(str(op["id"]))
        case "settings":
            ages = {str(window): int(ms) for window, ms in op.get("reference_age_ms", {}).items()}
            if unknown := set(ages) - set(WINDOWS):
                raise ValueError(f"no such window: {sorted(unknown)}; there are {', '.join(WINDOWS)}")
            return Settings(op.get("reorder_ms"), ages, op.get("max_ahead_ms"))
        case "instrument":
            return Instrument(str(op["symbol"]), int(op["decimals"]))
        case "split":
            effective_from_ms = parse_event_time(op["effective_from"])
            return Split(str(op["symbol"]), int(op["new_shares"]), int(op["old_shares"]), effective_from_ms)
        case "resume":
            return Resume(str(op["symbol"]))
        case other:
            raise ValueError(f"unknown op {other!r}")


def _parse_create(op: Mapping[str, Any]) -> Create:
    return Create(
        id=str(op["id"]),
        user=str(op["user"]),
        symbol=str(op["symbol"]),
        kind=Kind(op["kind"]),
        direction=Direction(op["direction"]),
        window=op.get("window"),
        bps=op.get("bps"),
        target=op.get("target"),
        created_at_ms=parse_event_time(op["at"]) if "at" in op else None,
        expires_at_ms=parse_event_time(op["expires_at"]) if "expires_at" in op else None,
    )


class _Names:
    """An alert or split of a symbol that nobody introduced can't be played, and an id names one alert."""

    def __init__(self) -> None:
        self._symbols: set[str] = set()
        self._alerts: set[str] = set()

    def check(self, operation: Operation) -> None:
        match operation:
            case Instrument(symbol=symbol):
                self._add(self._symbols, symbol, "instrument")
            case Create(id=alert, symbol=symbol):
                self._need(self._symbols, symbol, "instrument")
                self._add(self._alerts, alert, "alert")
            case Split(symbol=symbol) | Resume(symbol=symbol):
                self._need(self._symbols, symbol, "instrument")
            case Cancel(id=alert):
                self._need(self._alerts, alert, "alert")

    @staticmethod
    def _add(known: set[str], name: str, what: str) -> None:
        if name in known:
            raise ValueError(f"{what} {name!r} is there already")
        known.add(name)

    @staticmethod
    def _need(known: set[str], name: str, what: str) -> None:
        if name not in known:
            raise ValueError(f"{what} {name!r} is not there yet")
