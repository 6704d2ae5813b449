"""Puts each service together with the real log, database, clock and network."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import SystemRandom
from typing import Any, Final

import psycopg
from confluent_kafka import KafkaException

from contracts.topics import CANDIDATES, DEAD_LETTERS, SHARD_LOG, TRIGGERS
from finalizer.channels.mail import MailChannel, MailServer
from finalizer.channels.webhook import WebhookChannel
from finalizer.consumer import Consumer
from finalizer.notifier import MAX_SENDS, Notifier
from finalizer.rebuilder import Rebuilder
from finalizer.resharder import Resharder
from finalizer.retention import Retention
from finalizer.retention_archive import RetentionArchive
from finalizer.rule_relay import RuleRelay
from finalizer.settings import NotifierSettings, SweeperSettings
from finalizer.sweeper import Sweeper
from finalizer.together import Together
from finalizer.trigger_relay import TriggerRelay
from ports.clock import Clock
from ports.kafka import KafkaReader, KafkaWriter
from ports.message_log import LogError
from ports.secrets import SecretBox
from ports.service import Service
from ports.settings import ServiceSettings
from sql.connection import Pool, open_pool
from sql.delivery_store import PostgresDeliveryStore
from sql.finalizer_store import PostgresFinalizerStore
from sql.rebuild_store import PostgresRebuildStore
from sql.relay_store import PostgresRuleRelayStore, PostgresTriggerRelayStore
from sql.reshard_store import PostgresReshardStore
from sql.retention_store import PostgresRetentionStore

PASSING_ERRORS: Final[tuple[type[Exception], ...]] = (psycopg.OperationalError, LogError, KafkaException)
GATHER_SECONDS: Final = 0.01  # a batch's first record waits so long for others
RELAY_LINGER_MS: Final = 0  # its batches are whole when they are handed over


class OwnedService:
    """A service with what it was given: closing it closes that too, in the opposite order."""

    def __init__(self, service: Service, resources: ExitStack) -> None:
        self._service, self._resources = service, resources

    def step(self) -> bool:
        return self._service.step()

    def detail(self) -> dict[str, Any]:
        return self._service.detail()

    def close(self) -> None:
        with self._resources:
            self._service.close()


Assemble = Callable[[Clock, Pool, ExitStack], Service]


def opener(settings: ServiceSettings, name: str, assemble: Assemble) -> Callable[[Clock], Service]:
    """What run_service opens, and opens again after a dependency was away."""

    def open_service(clock: Clock) -> Service:
        with ExitStack() as resources:
            pool = resources.enter_context(open_pool(settings.postgres_dsn, settings.postgres_schema, name))
            service = assemble(clock, pool, resources)
            return OwnedService(service, resources.pop_all())
        raise AssertionError("unreachable")

    return open_service


def consumer(settings: ServiceSettings) -> Callable[[Clock], Service]:
    def assemble(clock: Clock, pool: Pool, _: ExitStack) -> Service:
        return Consumer(
            PostgresFinalizerStore(pool),
            KafkaReader(settings.kafka, "finalizer-consumer", gather_seconds=GATHER_SECONDS),
            KafkaWriter(settings.kafka, "finalizer-consumer"),
            clock,
            candidates=CANDIDATES.named(settings.topic_prefix),
            dead_letters=DEAD_LETTERS.named(settings.topic_prefix),
        )

    return opener(settings, "finalizer-consumer", assemble)


def rule_relay(settings: ServiceSettings) -> Callable[[Clock], Service]:
    def assemble(_: Clock, pool: Pool, __: ExitStack) -> Service:
        writer = KafkaWriter(settings.kafka, "rule-relay", RELAY_LINGER_MS)
        return RuleRelay(PostgresRuleRelayStore(pool), writer, shard_log=SHARD_LOG.named(settings.topic_prefix))

    return opener(settings, "rule-relay", assemble)


def sweeper(settings: SweeperSettings) -> Callable[[Clock], Service]:
    folder = settings.retention_folder
    keep = RetentionArchive(folder).keep if folder is not None else _keep_nothing

    def assemble(clock: Clock, pool: Pool, _: ExitStack) -> Service:
        retention = Retention(
            PostgresRetentionStore(pool),
            clock,
            alert_days=settings.retention_alert_days,
            command_days=settings.retention_command_days,
            keep=keep,
        )
        return Together(Sweeper(PostgresFinalizerStore(pool), clock), retention)

    return opener(settings, "sweeper", assemble)


def _keep_nothing(_: object) -> None: ...


def shard_upkeep(settings: ServiceSettings) -> Callable[[Clock], Service]:
    def assemble(clock: Clock, pool: Pool, _: ExitStack) -> Service:
        resharder = Resharder(PostgresReshardStore(pool), clock)
        return Together(resharder, Rebuilder(PostgresRebuildStore(pool)))

    return opener(settings, "shard-upkeep", assemble)


def trigger_relay(settings: ServiceSettings) -> Callable[[Clock], Service]:
    def assemble(_: Clock, pool: Pool, __: ExitStack) -> Service:
        return TriggerRelay(
            PostgresTriggerRelayStore(pool),
            KafkaWriter(settings.kafka, "trigger-relay", RELAY_LINGER_MS),
            triggers=TRIGGERS.named(settings.topic_prefix),
            dead_letters=DEAD_LETTERS.named(settings.topic_prefix),
        )

    return opener(settings, "trigger-relay", assemble)


def notifier(settings: NotifierSettings) -> Callable[[Clock], Service]:
    secrets = SecretBox(settings.secret_key.get_secret_value())  # a wrong key ends the start, not a delivery

    def assemble(clock: Clock, pool: Pool, resources: ExitStack) -> Service:
        executor = resources.enter_context(ThreadPoolExecutor(MAX_SENDS, thread_name_prefix="send"))
        return Notifier(
            PostgresDeliveryStore(pool),
            KafkaReader(settings.kafka, "notifier", gather_seconds=GATHER_SECONDS),
            KafkaWriter(settings.kafka, "notifier"),
            clock,
            channels={
                "email": MailChannel(mail_server(settings)),
                "webhook": WebhookChannel(secrets, clock, allow_private=settings.webhook_allow_private),
            },
            executor=executor,
            random=SystemRandom().random,
            triggers=TRIGGERS.named(settings.topic_prefix),
            dead_letters=DEAD_LETTERS.named(settings.topic_prefix),
            retry_seconds=settings.schedule,
        )

    return opener(settings, "notifier", assemble)


def mail_server(settings: NotifierSettings) -> MailServer | None:
    """None when no server is set."""
    if settings.smtp_host is None:
        return None
    password = settings.smtp_password.get_secret_value() if settings.smtp_password else None
    return MailServer(
        settings.smtp_host,
        settings.smtp_port,
        settings.mail_from,
        settings.smtp_security,
        settings.smtp_username,
        password,
    )
