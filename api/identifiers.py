"""Ids in paths."""

from __future__ import annotations

from typing import Final

from api.problems import not_found

MAX_ID: Final = (1 << 63) - 1


def parse_id(text: str, what: str) -> int:
    """An id. What can't be one is one that does not exist: the same 404 for every reason."""
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not 0 < int(text) <= MAX_ID:
        raise not_found(what)
    return int(text)
