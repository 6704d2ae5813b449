"""Headers that every answer carries."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_PRIVATE: Final = (b"cache-control", b"no-store")


class ResponseHeaders:
    """ASGI middleware: no sniffing, no referrer; answers of the API are kept by nobody."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [*_ALWAYS, _PRIVATE] if scope["path"].startswith("/v1/") else list(_ALWAYS)
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(scope, receive, send_with_headers)
