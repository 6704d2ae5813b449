"""Runs the API with uvicorn, and its health file beside it."""

from __future__ import annotations

import threading
from pathlib import Path

import structlog
import uvicorn
from psycopg import OperationalError

from api.app import make_app
from api.database import PostgresDatabase
from api.settings import ApiSettings
from ports.clock import Clock, SystemClock
from ports.service import HEALTH_INTERVAL_MS, write_health

GRACEFUL_SHUTDOWN_SECONDS = 10
MAX_CONCURRENT_REQUESTS = 2_000

log = structlog.get_logger()


def serve(settings: ApiSettings) -> None:
    """Until SIGTERM or SIGINT; requests under way are finished."""
    clock = SystemClock()
    database = PostgresDatabase.open(settings)
    reporter = HealthReporter(database, clock, settings.health_file)
    config = uvicorn.Config(
        make_app(settings, database, clock),
        host=settings.api_host,
        port=settings.api_port,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONCURRENT_REQUESTS,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_SECONDS,
    )
    try:
        reporter.start()
        log.info("API listens", host=settings.api_host, port=settings.api_port)
        uvicorn.Server(config).run()
    finally:
        reporter.stop()
        database.close()


class HealthReporter:
    """Writes the health file every second: ok while the database answers."""

    def __init__(self, database: PostgresDatabase, clock: Clock, path: Path | None) -> None:
        self._database = database
        self._clock = clock
        self._path = path
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        if self._path is not None:
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while not self._stopped.is_set():
            ok, detail = self._look()
            write_health(self._path, ok, self._clock.wall_ms(), detail)
            self._stopped.wait(HEALTH_INTERVAL_MS / 1_000)

    def _look(self) -> tuple[bool, dict[str, object]]:
        try:
            self._database.transact(lambda t: t.overview.ping())
        except OperationalError as error:
            return False, {"error": str(error)}
        return True, {}
