"""The demo's webhook receiver: verifies each signature with the standardwebhooks library, keeps what was good.

Run as `python -m stack.demo.receiver`, set by ALERTS_DEMO_… variables.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any, Final

import orjson
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from ports.settings import load_settings
from stack.demo.heartbeat import telling_health
from stack.files import read_json, write_atomically

MAX_BODY_BYTES: Final = 1 << 18


class ReceiverSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="ALERTS_DEMO_", extra="ignore")

    host: str = "127.0.0.1"
    receiver_port: int
    folder: Path
    secrets_file: Path
    health_file: Path | None = Field(default=None, validation_alias="ALERTS_HEALTH_FILE")


class ReceivedStore:
    """One file a delivery id: written as a whole before it is acknowledged, so a repeat replaces itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, owner: str, delivery_id: str, body: Any) -> None:
        """Counts the repeats, so that "at least once" can be seen."""
        path = self._folder / f"{hashlib.sha256(f'{owner} {delivery_id}'.encode()).hexdigest()[:32]}.json"
        times = read_json(path, {"times": 0})["times"] + 1
        record = {"owner": owner, "delivery_id": delivery_id, "times": times, "body": body}
        write_atomically(path, orjson.dumps(record).decode())

    def read_all(self) -> list[dict[str, Any]]:
        return [orjson.loads(path.read_bytes()) for path in sorted(self._folder.glob("*.json"))]


def receiver_app(store: ReceivedStore, secrets_file: Path) -> FastAPI:
    """POST `/hooks/{owner}` takes a signed webhook; GET `/received` lists what was good."""
    app = FastAPI(title="Demo webhook receiver", docs_url=None, redoc_url=None)

    @app.post("/hooks/{owner}", status_code=204)
    async def receive(owner: str, request: Request) -> None:
        secret = read_json(secrets_file, {}).get(owner)
        if secret is None:
            raise HTTPException(404, "no such hook")
        body = await request.body()
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, "too large")
        try:
            payload = Webhook(secret).verify(body, dict(request.headers))
        except WebhookVerificationError as error:
            raise HTTPException(401, f"signature: {error}") from None
        await asyncio.to_thread(store.add, owner, request.headers["webhook-id"], payload)

    @app.get("/received")
    def list_received() -> JSONResponse:
        return JSONResponse(store.read_all())

    return app


async def serve(settings: ReceiverSettings) -> None:
    """Until SIGTERM."""
    app = receiver_app(ReceivedStore(settings.folder), settings.secrets_file)
    async with telling_health(settings.health_file):
        await uvicorn.Server(
            uvicorn.Config(app, host=settings.host, port=settings.receiver_port, log_level="warning")
        ).serve()


if __name__ == "__main__":
    asyncio.run(serve(load_settings(ReceiverSettings)))
