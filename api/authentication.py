"""Who asks, from `Authorization: Bearer ak_…`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Final

from cachetools import TTLCache
from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from api.database import PostgresDatabase
from api.keys import parse_key
from api.principal import Principal
from api.problems import ProblemError
from api.settings import KEY_CACHE_SECONDS, KEY_CACHE_SIZE

_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}
_BEARER: Final = HTTPBearer(
    auto_error=False,
    scheme_name="apiKey",
    bearerFormat="ak_<key id>_<secret>",
    description="`./alerts admin create-key`",
)


class Authenticator:
    """Verifies keys; remembers verified ones for KEY_CACHE_SECONDS, so that a revocation takes that long at most."""

    def __init__(self, database: PostgresDatabase, monotonic_seconds: Callable[[], float]) -> None:
        self._database = database
        # By a hash: no key lies in memory longer than its request.
        self._verified: TTLCache[bytes, Principal] = TTLCache(KEY_CACHE_SIZE, KEY_CACHE_SECONDS, monotonic_seconds)
        self._lock = threading.Lock()

    def remembered(self, header: str) -> Principal | None:
        with self._lock:
            return self._verified.get(_digest(header))

    def verify(self, header: str) -> Principal:
        """The principal of an Authorization header. Raises ProblemError (401), the same for every reason."""
        scheme, _, text = header.partition(" ")
        key = parse_key(text.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise _refused()
        stored = self._database.transact(lambda t: t.owners.find_valid_key(key.key_id))
        if stored is None or not key.matches(stored.key_hash):
            raise _refused()
        principal = Principal(stored.owner_id, key.key_id, stored.scopes)
        with self._lock:
            self._verified[_digest(header)] = principal
        return principal


def _digest(header: str) -> bytes:
    return sha256(header.encode("utf-8", "surrogateescape")).digest()


def _refused() -> ProblemError:
    detail = "Send a valid key as `Authorization: Bearer ak_…`; this one is missing, wrong, expired or revoked."
    return ProblemError("unauthorized", detail, headers=_CHALLENGE)


async def _authenticate(request: Request, _: Annotated[object, Depends(_BEARER)]) -> Principal:
    header = request.headers.get("authorization")
    if header is None:
        raise _refused()
    authenticator: Authenticator = request.app.state.authenticator
    # The usual case is answered without a thread.
    remembered = authenticator.remembered(header)
    return remembered if remembered is not None else await run_in_threadpool(authenticator.verify, header)


async def _authenticate_admin(principal: Annotated[Principal, Depends(_authenticate)]) -> Principal:
    if not principal.admin:
        raise ProblemError("forbidden", "This is for keys of scope admin.")
    return principal


Authenticated = Annotated[Principal, Depends(_authenticate)]
Admin = Annotated[Principal, Depends(_authenticate_admin)]
