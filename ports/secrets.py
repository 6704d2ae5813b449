"""Secrets at rest: sealed under ALERTS_SECRET_KEY, opened only where they are used."""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken, MultiFernet


class SecretKeyError(ValueError):
    """ALERTS_SECRET_KEY cannot be used; the message never holds the key."""


class SealedSecretError(ValueError):
    """A sealed secret that none of the keys opens."""

    def __init__(self) -> None:
        super().__init__("a sealed secret does not open with ALERTS_SECRET_KEY; put the key it was sealed with back")


class SecretBox:
    """Seals with the first of the comma-separated keys and opens with any, so that keys can be rotated."""

    def __init__(self, keys: str) -> None:
        """keys: Fernet keys (32 bytes, URL-safe base64). Raises SecretKeyError."""
        texts = [key.strip() for key in keys.split(",") if key.strip()]
        try:
            self._fernet = MultiFernet([Fernet(text) for text in texts])
        except ValueError:
            raise SecretKeyError(
                "ALERTS_SECRET_KEY: each comma-separated key must be 32 bytes in URL-safe base64 "
                '(make one with `python -c "from ports.secrets import new_key; print(new_key())"`)'
            ) from None

    def seal(self, secret: str) -> bytes:
        return self._fernet.encrypt(secret.encode())

    def open(self, sealed: bytes) -> str:
        """The secret. Raises SealedSecretError."""
        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken:
            raise SealedSecretError from None


def new_key() -> str:
    """A fresh key."""
    return Fernet.generate_key().decode()
