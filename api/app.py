"""The application: its parts put together, nothing decided."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import anyio.to_thread
from fastapi import FastAPI

from api.admin.endpoints import admin_routes
from api.admin.ticks import TickProducer, tick_routes
from api.alerts.activation import ActivationWaiter
from api.alerts.archived_prices import ArchivedPrices
from api.alerts.endpoints import alert_routes
from api.alerts.evidence_service import EvidenceService
from api.alerts.service import AlertService
from api.authentication import Authenticator
from api.body_limit import BodyLimit
from api.channels.endpoints import channel_routes
from api.channels.service import ChannelService
from api.database import PostgresDatabase
from api.health.endpoints import health_routes
from api.openapi import install_openapi
from api.page.endpoints import page_routes
from api.problems import install_problems
from api.response_headers import ResponseHeaders
from api.settings import MAX_BODY_BYTES, POST_TIMEOUT_MS, ApiSettings
from contracts.topics import TICKS
from ports.clock import Clock
from ports.kafka import KafkaWriter
from ports.message_log import LogWriter
from ports.secrets import SecretBox


def make_app(
    settings: ApiSettings, database: PostgresDatabase, clock: Clock, open_log: Callable[[], LogWriter] | None = None
) -> FastAPI:
    """The API over a database that the caller closes. Raises SecretKeyError when ALERTS_SECRET_KEY is unusable.

    open_log: where posted prices go; default: the settings' Kafka, None when there is none.
    """
    version = _version()
    waiter = ActivationWaiter(lambda alert_ids: database.transact(lambda t: t.alerts.statuses(alert_ids)))

    open_log = open_log or _kafka_log(settings)
    producer = open_log and TickProducer(open_log, TICKS.named(settings.topic_prefix), clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # More threads than connections would only wait for each other.
        anyio.to_thread.current_default_thread_limiter().total_tokens = settings.api_pool_size + 4
        yield
        await waiter.close()
        if producer is not None:
            producer.close()

    app = FastAPI(
        title="Rolling alerts",
        version=version,
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.authenticator = Authenticator(database, lambda: clock.monotonic_ms() / 1_000)
    install_problems(app)
    alerts = AlertService(database, clock, settings.market_clock_bound_ms)
    evidence = EvidenceService(database, alerts, ArchivedPrices(settings.archive_folder))
    app.include_router(alert_routes(alerts, evidence, waiter))
    app.include_router(
        channel_routes(ChannelService(database, SecretBox(settings.secret_key) if settings.secret_key else None))
    )
    app.include_router(health_routes(database, clock, version))
    app.include_router(admin_routes(database))
    app.include_router(tick_routes(database, producer))
    app.include_router(page_routes())
    install_openapi(app)
    app.add_middleware(BodyLimit, max_bytes=MAX_BODY_BYTES)  # the framework's own answers in plain text
    app.add_middleware(ResponseHeaders)
    return app


def _kafka_log(settings: ApiSettings) -> Callable[[], LogWriter] | None:
    servers = settings.kafka
    if servers is None:
        return None
    return lambda: KafkaWriter(servers, "alerts-api", delivery_timeout_ms=POST_TIMEOUT_MS)


def _version() -> str:
    try:
        return installed_version("rolling-alerts")
    except PackageNotFoundError:  # run from a checkout
        return "0+checkout"
