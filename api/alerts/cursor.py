"""Where the next page begins: opaque, and good only for the filter that it was made for."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import Final

from api.ports import AlertFilter

VERSION: Final = b"\x01"
DIGEST_BYTES: Final = 6
TEXT_LENGTH: Final = 20
FIRST: Final = (1 << 63) - 1  # above every alert_id


class CursorError(ValueError):
    """Not a cursor of this listing."""

    def __init__(self) -> None:
        super().__init__("not a cursor of this listing: take next_cursor of a page with the same status and symbol")


def encode_cursor(last_alert_id: int, shown: AlertFilter) -> str:
    body = VERSION + last_alert_id.to_bytes(8, "big")
    return urlsafe_b64encode(body + _digest(body, shown)).decode()


def decode_cursor(text: str, shown: AlertFilter) -> int:
    """alert_id that the page begins below. Raises CursorError."""
    if len(text) != TEXT_LENGTH or not text.isascii():
        raise CursorError
    try:
        raw = urlsafe_b64decode(text)
    except (binascii.Error, ValueError):
        raise CursorError from None
    body, digest = raw[:-DIGEST_BYTES], raw[-DIGEST_BYTES:]
    if body[:1] != VERSION or digest != _digest(body, shown) or urlsafe_b64encode(raw).decode() != text:
        raise CursorError
    last_alert_id = int.from_bytes(body[1:], "big")
    if not 0 <= last_alert_id <= FIRST:
        raise CursorError
    return last_alert_id


def _digest(body: bytes, shown: AlertFilter) -> bytes:
    """Catches mistakes, not forgers: a page holds its owner's alerts whatever the cursor says."""
    listing = f"\x00{shown.status or ''}\x00{shown.symbol or ''}".encode()
    return blake2b(body + listing, digest_size=DIGEST_BYTES).digest()
