"""How symbols are spelled: people and vendors write BRK.B, BRK-B, brk.b; an instrument has one canonical symbol."""

from __future__ import annotations

import re
from typing import Final

# Printable ASCII without spaces, quotes or backslashes: vendors use . - / : = ^ _ + & # $ @ and digits.
CANONICAL: Final = re.compile(r"[A-Z0-9][A-Z0-9.\-/:=^_+&#$@]{0,31}|[\^$#@][A-Z0-9.\-/:=^_+&#$@]{1,31}", re.ASCII)
_CLASS_SEPARATORS: Final = (".", "-", "/")  # of a share class or a pair


class SymbolError(ValueError):
    """A text that can't be any instrument's symbol; `text` is it."""

    def __init__(self, text: object) -> None:
        super().__init__(f"{text!r} is no symbol: 1 to 32 letters, digits and . - / : = ^ _ + & # $ @, nothing else")
        self.text = text


def canonical_symbol(text: object) -> str:
    """Without the spaces around it, in capitals. Raises SymbolError."""
    if not isinstance(text, str) or len(text) > 64:
        raise SymbolError(text if not isinstance(text, str) else text[:64])
    symbol = text.strip()
    if not symbol.isascii() or not CANONICAL.fullmatch(symbol.upper()):
        raise SymbolError(text)
    return symbol.upper()


def spellings(text: object) -> list[str]:
    """Symbols that a person may have meant, the likeliest first: as written, then with another class separator.

    An exact match must win: VOD.L is not VOD-L while both exist. Raises SymbolError.
    """
    symbol = canonical_symbol(text)
    others = (
        symbol.replace(used, other) for used in _CLASS_SEPARATORS for other in _CLASS_SEPARATORS if used in symbol
    )
    return list(dict.fromkeys((symbol, *others)))
