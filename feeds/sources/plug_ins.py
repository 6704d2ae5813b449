"""Which kinds of sources a feed can have of its own, and how one is opened: ours, and those of other packages.

A feed names its source in `feeds.settings` as `{"source": {"kind": …, …}}`. Another package adds a kind by an entry
point of the group `rolling_alerts.sources`: its name is the kind, its object a `SourceKind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from pydantic import BaseModel, ValidationError

from feeds.sources.secret_references import check_references
from feeds.sources.source import Source, SourceError
from ports.clock import Clock

GROUP: Final = "rolling_alerts.sources"
_OURS: Final[Mapping[str, tuple[str, str]]] = {  # imported when a feed uses it: ccxt alone takes seconds
    "csv": ("feeds.sources.csv_file", "CSV"),
    "parquet": ("feeds.sources.parquet_file", "PARQUET"),
    "http": ("feeds.sources.http_polling", "HTTP"),
    "websocket": ("feeds.sources.websocket", "WEBSOCKET"),
    "exchange": ("feeds.sources.exchange", "EXCHANGE"),
}


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """What a source is opened with.

    name: of its partition, the same after every restart. first_position: where a source numbers from that can't be read
    again (`session_position`). frontier_ms: how far the feed has come, 0 when it is new; what is older would be late.
    secrets: what `${NAME}` in the settings stands for.
    """

    feed: str
    name: str
    clock: Clock
    first_position: int = 0
    frontier_ms: int = 0
    secrets: Mapping[str, str] | None = None


class SourceKind(Protocol):
    """A kind of source. `settings` is the pydantic model of the feed's `source` object, without its `kind`."""

    @property
    def settings(self) -> type[BaseModel]: ...

    def open(self, settings: Any, order: SourceOrder) -> Source:
        """settings: an instance of the model. Must not wait for a network. Raises SourceError."""
        ...


SESSION_POSITIONS: Final = 1 << 40  # of one lease: 20 000 a second for 600 days


def session_position(lease: int) -> int:
    """First position of a session of a source that can't be read again: above every one of an earlier lease."""
    return lease * SESSION_POSITIONS


def known_kinds() -> list[str]:
    """Kinds that can be named, ours and those of other packages."""
    return sorted({*_OURS, *(point.name for point in entry_points(group=GROUP))})


def check_source(stored: object) -> tuple[SourceKind, BaseModel]:
    """A feed's `source` object, read. Raises SourceError, which names the field and never shows a value of it."""
    if not isinstance(stored, Mapping) or not isinstance(stored.get("kind"), str):
        raise SourceError('source: give an object with a "kind": ' + ", ".join(known_kinds()))
    kind = _find(stored["kind"])
    check_references(stored)
    try:
        settings = kind.settings.model_validate({name: value for name, value in stored.items() if name != "kind"})
    except ValidationError as error:
        found = [f"source.{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise SourceError("; ".join(found[:5])) from None
    return kind, settings


def open_feed_source(stored: object, order: SourceOrder) -> Source:
    """Raises SourceError."""
    kind, settings = check_source(stored)
    return kind.open(settings, order)


def _find(name: str) -> SourceKind:
    ours = _OURS.get(name)
    if ours is not None:
        found: SourceKind = getattr(import_module(ours[0]), ours[1])
        return found
    for point in entry_points(group=GROUP, name=name):
        try:
            loaded: SourceKind = point.load()
        except Exception as error:  # a stranger's package: whatever it raises, the other feeds go on
            raise SourceError(f"source kind {name} of {point.value} can't be loaded: {type(error).__name__}") from error
        return loaded
    raise SourceError(f"source kind {name[:40]!r}: there is none; known are {', '.join(known_kinds())}")
