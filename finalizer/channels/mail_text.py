"""A trigger as a mail: subject, plain text, HTML. Whatever an owner wrote can break neither a header nor the HTML."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from email.errors import MessageError
from email.header import Header
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import EmailPolicy
from html import escape
from typing import Any, Final

from contracts.trigger import TriggerMessage
from contracts.trigger_words import WINDOW_WORDS, bps_to_percent, what_happened

CRLF: Final = "\r\n"
MAX_SUBJECT_CHARACTERS: Final = 200
DIRECTION_WORDS: Final = {
    "UP": "up",
    "DOWN": "down",
    "EITHER": "up or down",
    "ABOVE": "at or above",
    "BELOW": "at or below",
}


class MailPolicy(EmailPolicy):
    """Keeps the subject as it is given and encodes it with email.header.

    Python 3.11's own way decodes what looks like an encoded word, and drops a space between two encoded ones.
    """

    def header_store_parse(self, name: str, value: Any) -> tuple[str, Any]:
        return (name, value) if name.lower() == "subject" else super().header_store_parse(name, value)

    def fold(self, name: str, value: Any) -> str:
        return _fold_subject(name, str(value)) if name.lower() == "subject" else super().fold(name, value)

    def fold_binary(self, name: str, value: Any) -> bytes:
        if name.lower() == "subject":
            return _fold_subject(name, str(value)).encode("ascii")
        return super().fold_binary(name, value)


def _fold_subject(name: str, text: str) -> str:
    plain = text.isascii() and "=?" not in text  # a text that looks like an encoded word must be one
    return f"{name}: {Header(text, 'us-ascii' if plain else 'utf-8', header_name=name).encode(linesep=CRLF)}{CRLF}"


def compose_mail(message: TriggerMessage, sender: str, recipient: str, delivery_id: str) -> EmailMessage:
    """The whole mail. Raises ValueError when an address is none.

    sender may carry a display name; recipient is one bare address, which is why it is parsed as such.
    """
    mail = EmailMessage(policy=MailPolicy(linesep=CRLF))
    mail["Subject"] = subject_of(message)
    mail["From"] = sender
    try:
        mail["To"] = Address(addr_spec=recipient)
    except (MessageError, IndexError) as error:  # the parser indexes into an empty text
        raise ValueError(f"{recipient!r} is no mail address") from error
    mail["Message-ID"] = f"<{delivery_id}@{sender.rpartition('@')[2].rstrip('>') or 'localhost'}>"
    mail["Date"] = datetime.fromtimestamp(message.evidence.finalized_at_ms / 1000, UTC)
    mail["Auto-Submitted"] = "auto-generated"
    lines = lines_of(message)
    mail.set_content("\n".join(f"{name}: {value}" for name, value in lines) + "\n")
    rows = "".join(f"<tr><th align=left>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in lines)
    mail.add_alternative(f"<html><body><table>{rows}</table></body></html>\n", subtype="html")
    return mail


def subject_of(message: TriggerMessage) -> str:
    """One line without control characters: what happened, then the owner's note, cut at MAX_SUBJECT_CHARACTERS."""
    text = summary_of(message) + (f" – {message.note}" if message.note else "")
    line = " ".join("".join(" " if _is_control(c) else c for c in text).split())
    return line if len(line) <= MAX_SUBJECT_CHARACTERS else line[: MAX_SUBJECT_CHARACTERS - 1] + "…"


def summary_of(message: TriggerMessage) -> str:
    """What the page says too, and the price."""
    told = what_happened(message.symbol, message.target, message.threshold_bps, message.evidence)
    return f"{told}: {message.evidence.price}"


def lines_of(message: TriggerMessage) -> list[tuple[str, str]]:
    """Names and values, in the order of a reader's questions."""
    evidence, word = message.evidence, DIRECTION_WORDS[message.direction]
    lines = [("What", summary_of(message)), ("Price", evidence.price), ("At", utc(evidence.event_time_ms))]
    if message.kind == "change":
        assert evidence.reference_time_ms is not None
        assert evidence.previous_bps is not None
        assert evidence.current_bps is not None
        assert message.threshold_bps is not None
        window = WINDOW_WORDS.get(message.window or "", message.window)
        lines += [
            ("Threshold", f"{word} {bps_to_percent(message.threshold_bps)}% in {window}"),
            ("Reference price", f"{evidence.reference_price} at {utc(evidence.reference_time_ms)}"),
            # the webhook's own fields: of the change before, the floor is all that is known
            ("In basis points, rounded down", f"{evidence.previous_bps} before, {evidence.current_bps} now"),
        ]
    else:
        lines += [("Target", f"{word} {message.target}"), ("Price before", str(evidence.previous_price))]
    if message.note:
        lines.append(("Note", message.note))
    return [*lines, ("Alert", str(message.alert_id)), ("Trigger", message.trigger_id)]


def utc(event_time_ms: int) -> str:
    moment = datetime.fromtimestamp(event_time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{event_time_ms % 1000:03d} UTC"


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\u200d\ufe0f"
