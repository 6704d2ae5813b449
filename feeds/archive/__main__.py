"""`python -m feeds.archive`: the archive as a process."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from contracts.topics import PRICES
from feeds.archive.parquet_file import ArchiveDiskError
from feeds.archive.positions import ArchiveStateError
from feeds.archive.settings import ArchiveSettings
from feeds.archive.writer import ArchiveWriter
from ports.clock import Clock
from ports.kafka import KafkaReader
from ports.logging import configure_logging
from ports.message_log import LogError
from ports.service import run_service
from ports.settings import SettingsError, load_settings
from sql.latest_price_store import open_latest_price_store


def main() -> int:
    """Until SIGTERM. 2: the environment is wrong."""
    try:
        settings = load_settings(ArchiveSettings)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 — the one sentence for whoever started it
        return 2
    configure_logging(settings.log_level, "archive")
    passing = (LogError, ArchiveDiskError, ArchiveStateError)
    run_service(lambda clock: open_archive(settings, clock), settings.health_file, passing)
    return 0


def open_archive(settings: ArchiveSettings, clock: Clock) -> ArchiveWriter:
    """Everything opened here is closed again when a later part can't be."""
    with ExitStack() as opened:
        latest = open_latest_price_store(settings.postgres_dsn, settings.postgres_schema)
        opened.callback(latest.close)
        reader = KafkaReader(settings.kafka, "archive-prices")
        opened.callback(reader.close)
        writer = ArchiveWriter(
            folder=settings.archive_folder,
            topic=PRICES.named(settings.topic_prefix),
            reader=reader,
            latest=latest,
            clock=clock,
            roll_ms=int(settings.archive_roll_seconds * 1000),
            retention_days=settings.archive_retention_days,
        )
        opened.pop_all()
        return writer


if __name__ == "__main__":
    sys.exit(main())
