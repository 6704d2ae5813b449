"""What happens to channels on their owner's word, each in one transaction."""

from __future__ import annotations

import secrets
from base64 import b64encode
from typing import Final

from api.channels.schemas import NewEmailChannel, NewWebhookChannel
from api.ports import Database, Row, Transaction
from api.principal import Principal
from api.problems import ProblemError, not_found
from ports.secrets import SecretBox

MAX_CHANNELS: Final = 20  # enabled ones of an owner
SECRET_BYTES: Final = 32


class ChannelService:
    """Every error a ProblemError or the database's own."""

    def __init__(self, database: Database, secret_box: SecretBox | None) -> None:
        self._database = database
        self._secret_box = secret_box

    def create(self, principal: Principal, request: NewEmailChannel | NewWebhookChannel) -> tuple[Row, str | None]:
        """The channel's row, and a webhook's secret, which is readable only here and when it signs."""
        if isinstance(request, NewEmailChannel):
            return self._insert(principal, "email", request.address, None), None
        if self._secret_box is None:
            raise ProblemError(
                "not-configured", "This installation has no webhooks: its operator must set ALERTS_SECRET_KEY first."
            )
        secret = "whsec_" + b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
        return self._insert(principal, "webhook", request.url, self._secret_box.seal(secret)), secret

    def _insert(self, principal: Principal, kind: str, address: str, sealed: bytes | None) -> Row:
        def insert(transaction: Transaction) -> Row:
            store = transaction.channels
            row = store.insert(principal.owner_id, kind, address, sealed, MAX_CHANNELS)
            if row is not None:
                return row
            existing = store.find_address(principal.owner_id, kind, address)
            if existing is not None:
                raise ProblemError("conflict", f"It is your channel {existing} already.", channel_id=existing)
            raise ProblemError("quota-exceeded", f"You have {MAX_CHANNELS} channels already; delete one first.")

        return self._database.transact(insert)

    def page(self, principal: Principal) -> list[Row]:
        return self._database.transact(lambda t: t.channels.page(principal.owner_id, MAX_CHANNELS))

    def disable(self, principal: Principal, channel_id: int) -> None:
        """Nothing more is sent there. Idempotent."""
        if not self._database.transact(lambda t: t.channels.disable(principal.owner_id, channel_id)):
            raise not_found("channel")
