"""Signed webhooks (Standard Webhooks): pinned connection, no redirects, the same bytes and id on every try."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Final

import httpx
from standardwebhooks.webhooks import Webhook

from finalizer.channels.address_guard import (
    Resolver,
    Target,
    UnresolvedNameError,
    UnsafeTargetError,
    resolve_target,
    resolver_within,
    system_resolver,
)
from finalizer.channels.outcome import Delivery, Outcome, dead, delivered, retry
from ports.clock import Clock
from ports.secrets import SealedSecretError, SecretBox

CONNECT_SECONDS: Final = 5.0
TOTAL_SECONDS: Final = 10.0  # from the name lookup to the answer's head, however slowly it drips
MAX_RETRY_AFTER_SECONDS: Final = 24 * 3600.0
RETRIED_STATUSES: Final = frozenset({408, 425, 429})


class WebhookChannel:
    """Channel. TLS is verified against the URL's host name, while the connection goes to the judged address."""

    def __init__(
        self,
        secrets: SecretBox,
        clock: Clock,
        *,
        allow_private: bool = False,
        resolver: Resolver = system_resolver,
        tls: ssl.SSLContext | None = None,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        self._secrets, self._clock, self._allow_private, self._resolver = secrets, clock, allow_private, resolver
        self._tls = tls or ssl.create_default_context()
        self._total_seconds = total_seconds

    def send(self, delivery: Delivery) -> Outcome:
        if delivery.secret is None:
            return dead("the webhook has no signing secret")
        began = monotonic()
        resolver = resolver_within(self._resolver, self._total_seconds)
        try:
            signer = Webhook(self._secrets.open(delivery.secret))
            target = resolve_target(delivery.address, resolver, allow_private=self._allow_private)
        except UnsafeTargetError as error:
            return dead(error.reason)
        except (UnresolvedNameError, SealedSecretError) as error:
            return retry(str(error))  # a name may come back, and the operator can put a key back
        at = datetime.fromtimestamp(self._clock.wall_ms() // 1000, UTC)
        headers = {
            "host": target.host_header,
            "content-type": "application/json",
            "user-agent": "rolling-alerts",
            "webhook-id": delivery.delivery_id,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": signer.sign(delivery.delivery_id, at, delivery.body.decode()),
        }
        try:
            left = max(0.0, self._total_seconds - (monotonic() - began))
            return asyncio.run(self._post(target, headers, delivery.body, left))
        except (TimeoutError, httpx.TimeoutException):
            return retry(f"no answer within {self._total_seconds:g} s")
        except (httpx.HTTPError, OSError) as error:
            return retry(f"{type(error).__name__}: {error}"[:300])

    async def _post(self, target: Target, headers: dict[str, str], body: bytes, seconds: float) -> Outcome:
        timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
        client = httpx.AsyncClient(verify=self._tls, trust_env=False, follow_redirects=False, timeout=timeout)
        async with asyncio.timeout(seconds), client:
            for number, address in enumerate(target.addresses, 1):
                host = f"[{address}]" if ":" in address else address
                request = client.build_request(
                    "POST",
                    f"{target.scheme}://{host}:{target.port}{target.path}",
                    content=body,
                    headers=headers,
                    extensions={"sni_hostname": target.host},
                )
                try:
                    response = await client.send(request, stream=True)  # the answer's body is nobody's business
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    if number == len(target.addresses):
                        raise
                    continue  # nothing was sent: the next address is no second delivery
                await response.aclose()
                return self._judge(response)
        raise AssertionError("a target has addresses")

    def _judge(self, response: httpx.Response) -> Outcome:
        status = response.status_code
        if 200 <= status < 300:
            return delivered()
        if status == 410:
            return dead("HTTP 410: the receiver is gone; the channel is disabled", disable_channel=True)
        if status in RETRIED_STATUSES or status >= 500:
            wished = retry_after_seconds(response.headers.get("retry-after"), self._clock.wall_ms())
            return retry(f"HTTP {status}", wished)
        if 300 <= status < 400:
            return dead(f"HTTP {status}: redirects are not followed")
        return dead(f"HTTP {status}")


def retry_after_seconds(header: str | None, now_ms: int) -> float | None:
    """Seconds that a Retry-After header asks for (a number or a date), at most a day; None when it says nothing."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit() and len(text) <= 9:
        wished = float(text)
    else:
        try:
            at = parsedate_to_datetime(text)
        except ValueError:
            return None
        wished = at.replace(tzinfo=at.tzinfo or UTC).timestamp() - now_ms / 1000
    return min(max(wished, 0.0), MAX_RETRY_AFTER_SECONDS)
