"""Texts that people send: what can't be stored or shown safely is refused at the edge."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

# Control characters but tab and line breaks: NUL can't be stored, others only serve to confuse a terminal.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ANY_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _encodable(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no character") from None


def check_text(text: str) -> str:
    """Some lines of text."""
    _encodable(text)
    if _CONTROL.search(text):
        raise ValueError("control characters are not possible here")
    return text


def check_line(text: str) -> str:
    """One line of text."""
    _encodable(text)
    if _ANY_CONTROL.search(text):
        raise ValueError("control characters are not possible here")
    return text


Text = Annotated[str, AfterValidator(check_text)]
Line = Annotated[str, AfterValidator(check_line)]
