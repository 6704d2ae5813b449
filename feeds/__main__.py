"""`python -m feeds`: the gateway as a process."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from feeds.gateway import FeedGateway
from feeds.own_sources import OwnSources
from feeds.ports import StoreAwayError
from feeds.settings import GatewaySettings, open_source
from feeds.sources.secret_references import source_secrets
from feeds.sources.source import SourceError
from ports.clock import Clock
from ports.kafka import KafkaReader, KafkaWriter
from ports.logging import configure_logging
from ports.message_log import LogError
from ports.service import run_service
from ports.settings import SettingsError, load_settings
from sql.feed_store import open_feed_store


def main() -> int:
    """Until SIGTERM. 2: the environment or the source is wrong."""
    try:
        settings = load_settings(GatewaySettings)
        configure_logging(settings.log_level, "feeds")
        run_service(lambda clock: open_gateway(settings, clock), settings.health_file, (LogError, StoreAwayError))
    except (SettingsError, SourceError) as error:
        print(error, file=sys.stderr)  # noqa: T201 — the one sentence for whoever started it
        return 2
    return 0


def open_gateway(settings: GatewaySettings, clock: Clock) -> FeedGateway:
    """Everything opened here is closed again when a later part can't be."""
    with ExitStack() as opened:
        store = open_feed_store(settings.postgres_dsn, settings.postgres_schema)
        opened.callback(store.close)
        writer = KafkaWriter(settings.kafka, "feeds")
        opened.callback(writer.close)
        prices = KafkaReader(settings.kafka, "feeds-prices")
        opened.callback(prices.close)
        source = open_source(settings, clock)
        opened.callback(source.close)
        own_sources = OwnSources(clock, source_secrets(os.environ))
        opened.callback(own_sources.close)
        gateway = FeedGateway(
            store=store,
            source=source,
            writer=writer,
            prices=prices,
            clock=clock,
            served=settings.served(),
            topic_prefix=settings.topic_prefix,
            own_sources=own_sources,
        )
        opened.pop_all()
        return gateway


if __name__ == "__main__":
    sys.exit(main())
