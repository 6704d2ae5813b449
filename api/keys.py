"""API keys: `ak_<key_id>_<secret>`. The secret has 256 random bits, so a plain fast hash of it is safe at rest."""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

SECRET_BYTES: Final = 32
KEY: Final = re.compile(r"ak_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as its holder has it; the secret part stays out of logs."""

    key_id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        return f"ak_{self.key_id}_{self.secret}"

    @property
    def hash(self) -> bytes:
        return sha256(self.secret.encode()).digest()

    def matches(self, key_hash: bytes) -> bool:
        """In constant time."""
        return hmac.compare_digest(self.hash, key_hash)


def new_key() -> ApiKey:
    return ApiKey(secrets.token_hex(8), secrets.token_urlsafe(SECRET_BYTES))


def parse_key(text: str) -> ApiKey | None:
    """The key in a text; None when it has another form."""
    found = KEY.fullmatch(text)
    return ApiKey(found[1], found[2]) if found else None
