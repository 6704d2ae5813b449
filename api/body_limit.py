"""Refuses bodies over a limit while they arrive, so that memory stays flat whatever is sent."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import problem_response


class BodyLimit:
    """ASGI middleware: 413 for a body over `max_bytes`, declared or counted."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _declared_length(scope) > self._max_bytes:
            await self._refuse(scope, receive, send)
            return
        messages, whole = await self._read(receive)
        if not whole:
            await self._refuse(scope, receive, send)
            return

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, replay, send)

    async def _read(self, receive: Receive) -> tuple[list[Message], bool]:
        """The messages of the body; False when it is over the limit."""
        messages: list[Message] = []
        size, more = 0, True
        while more:
            message = await receive()
            messages.append(message)
            size += len(message.get("body", b""))
            if size > self._max_bytes:
                return [], False
            more = message["type"] == "http.request" and message.get("more_body", False)
        return messages, True

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = f"A request body has at most {self._max_bytes} bytes."
        await problem_response("too-large", detail, headers={"Connection": "close"})(scope, receive, send)


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 16 else 1 << 62
    return 0
