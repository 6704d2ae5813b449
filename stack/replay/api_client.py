"""The API as a replay uses it: every call may be sent again, for a killed process must change no result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential_jitter

from stack.errors import StackError

TIMEOUT_S: Final = 90.0  # above the longest `?wait=`
MAX_REST_S: Final = 1.0
PAGE_ALERTS: Final = 500
_CONFLICT: Final = 409
# A gateway or a database that is away; the request may or may not have been done.
_PASSING_STATUS: Final = frozenset({429, 502, 503, 504})


class _PassingError(Exception):
    """An answer after which the same request is sent again."""


class ApiClient:
    """One API key. Requests that create carry an Idempotency-Key, so a repeat makes nothing new."""

    def __init__(self, base_url: str, api_key: str, give_up_after_s: float = 180.0) -> None:
        self._client = httpx.Client(
            base_url=base_url, timeout=TIMEOUT_S, headers={"Authorization": f"Bearer {api_key}"}, trust_env=False
        )
        self._retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, httpx.TransportError | _PassingError)),
            wait=wait_exponential_jitter(multiplier=0.05, max=MAX_REST_S),
            stop=stop_after_delay(give_up_after_s),
            reraise=True,
        )

    def request(self, method: str, path: str, **options: Any) -> Any:
        """The answer's JSON (None when it has none). Raises StackError when it is refused or never comes."""
        try:
            response = self._retrying(self._once, method, path, options)
        except (httpx.TransportError, _PassingError) as error:
            raise StackError(f"the API does not answer {method} {path}", remedy=str(error)) from None
        if response.is_error:
            raise StackError(f"the API refuses {method} {path} with {response.status_code}", remedy=_problem(response))
        return response.json() if response.content else None

    def create_once(self, path: str, body: dict[str, Any]) -> None:
        """POST something that has a name: when it is there already (409), an earlier try has made it."""
        try:
            response = self._retrying(self._once, "POST", path, {"json": body})
        except (httpx.TransportError, _PassingError) as error:
            raise StackError(f"the API does not answer POST {path}", remedy=str(error)) from None
        if response.is_error and response.status_code != _CONFLICT:
            raise StackError(f"the API refuses POST {path} with {response.status_code}", remedy=_problem(response))

    def _once(self, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        response = self._client.request(method, path, **options)
        if response.status_code in _PASSING_STATUS:
            raise _PassingError(_problem(response))
        return response

    def create_alert(self, body: dict[str, Any], idempotency_key: str, wait_s: float = 0.0) -> dict[str, Any]:
        """The alert as it is after at most `wait_s`, ACTIVE by then as a rule."""
        alert: dict[str, Any] = self.request(
            "POST", "/v1/alerts", json=body, params={"wait": wait_s}, headers={"Idempotency-Key": idempotency_key}
        )
        return alert

    def get_alert(self, alert_id: int) -> dict[str, Any]:
        alert: dict[str, Any] = self.request("GET", f"/v1/alerts/{alert_id}")
        return alert

    def cancel_alert(self, alert_id: int) -> dict[str, Any]:
        alert: dict[str, Any] = self.request("DELETE", f"/v1/alerts/{alert_id}")
        return alert

    def alerts(self) -> Iterator[dict[str, Any]]:
        """All of the key's owner, newest first."""
        cursor: dict[str, str] = {}
        while True:
            page = self.request("GET", "/v1/alerts", params={"limit": PAGE_ALERTS, **cursor})
            yield from page["alerts"]
            if page["next_cursor"] is None:
                return
            cursor = {"cursor": page["next_cursor"]}

    def close(self) -> None:
        self._client.close()


def _problem(response: httpx.Response) -> str:
    """The sentence of a problem+json body, or the beginning of whatever came."""
    try:
        body = response.json()
        return str(body.get("detail") or body.get("title") or body)
    except (ValueError, AttributeError):
        return f"{response.status_code} {response.text[:200]}"
