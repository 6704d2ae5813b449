"""The health file of a demo program, told again each second while its event loop turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ports.service import HEALTH_INTERVAL_MS, write_health


@asynccontextmanager
async def telling_health(path: Path | None) -> AsyncIterator[None]:
    async def tell() -> None:
        while True:
            write_health(path, True, time.time_ns() // 1_000_000, {})
            await asyncio.sleep(HEALTH_INTERVAL_MS / 1_000)

    task = asyncio.create_task(tell())
    try:
        yield
    finally:
        task.cancel()
