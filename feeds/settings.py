"""The gateway's settings, and the source that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field, field_validator

from contracts.topics import TICKS
from feeds.gateway import Served
from feeds.sources.csv_file import CsvFileSource, CsvLayout
from feeds.sources.kafka_json import KafkaJsonSource
from feeds.sources.scenario_file import ScenarioFileSource
from feeds.sources.source import Source, SourceError
from ports.clock import Clock
from ports.kafka import KafkaReader
from ports.settings import ServiceSettings

EVERY_FEED: Final = "*"
_KINDS: Final = ("kafka", "csv", "scenario")


class GatewaySettings(ServiceSettings):
    """ALERTS_… of `python -m feeds`."""

    feeds: str = Field(default=EVERY_FEED, description="feeds to serve, comma between; * every one, new ones too")
    default_feed: str | None = Field(default=None, description="feed of entries that name none; default: the only one")
    feed_source: str = Field(default="kafka", description="kafka, csv:PATH or scenario:PATH")
    csv_symbol_column: str = "symbol"
    csv_symbol: str | None = Field(default=None, description="the symbol of every row, when no column has it")
    csv_time_column: str = "ts"
    csv_price_column: str = "price"
    csv_sequence_column: str | None = None
    csv_session_column: str | None = None
    csv_delimiter: str = Field(default=",", min_length=1, max_length=1)
    csv_flush_at_end: bool = Field(default=False, description="replay feeds: release held ticks after the last row")

    @field_validator("feed_source")
    @classmethod
    def _known_source(cls, value: str) -> str:
        kind, _, path = value.partition(":")
        if kind not in _KINDS or (kind == "kafka") == bool(path):
            raise ValueError("give kafka, csv:PATH or scenario:PATH")
        return value

    def served(self) -> Served:
        """A file names no feeds: its entries are the one feed's that is listed."""
        if self.feeds.strip() == EVERY_FEED:
            return Served(None, self.default_feed)
        names = frozenset(name.strip() for name in self.feeds.split(",") if name.strip())
        default = self.default_feed
        if default is None and self.feed_source != "kafka" and len(names) == 1:
            default = next(iter(names))
        return Served(names, default)

    def csv_layout(self) -> CsvLayout:
        return CsvLayout(
            event_time=self.csv_time_column,
            price=self.csv_price_column,
            symbol=self.csv_symbol_column,
            fixed_symbol=self.csv_symbol,
            sequence=self.csv_sequence_column,
            session=self.csv_session_column,
            delimiter=self.csv_delimiter,
            flush_at_end=self.csv_flush_at_end,
        )


def open_source(settings: GatewaySettings, clock: Clock) -> Source:
    """Raises SourceError, LogError."""
    kind, _, path = settings.feed_source.partition(":")
    if kind == "csv":
        return CsvFileSource(Path(path), settings.csv_layout(), clock)
    if kind == "scenario":
        return ScenarioFileSource(Path(path), clock)
    if kind != "kafka":
        raise SourceError(f"source {kind}: there is no such kind")
    reader = KafkaReader(settings.kafka, "feeds-ticks")
    return KafkaJsonSource(reader, TICKS.named(settings.topic_prefix), TICKS.name, clock)
