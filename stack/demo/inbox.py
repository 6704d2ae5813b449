"""What has really arrived: the mailbox and the receiver, asked over HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import httpx

from sql.progress_store import DeliveryRow

DELIVERED = "DELIVERED"


def read_arrivals(mailbox_url: str, receiver_url: str) -> Mapping[str, int]:
    """Delivery id -> how often it came. A mail carries it in its Message-ID, a webhook in its signed headers."""
    times: Counter[str] = Counter()
    with httpx.Client(timeout=30.0, trust_env=False) as client:
        for mail in client.get(f"{mailbox_url}/messages").raise_for_status().json():
            times[mail["message_id"].strip("<>").partition("@")[0]] += 1
        for record in client.get(f"{receiver_url}/received").raise_for_status().json():
            times[record["delivery_id"]] += record["times"]
    return times


def judge_deliveries(rows: Sequence[DeliveryRow], arrivals: Mapping[str, int]) -> tuple[int, list[str]]:
    """(triggers whose every channel was delivered and has arrived, one sentence for each of the others)."""
    problems: dict[str, str] = {}
    for row in rows:
        where = f"alert {row.alert_id}, {row.kind} to {row.address}"
        if row.status != DELIVERED:
            error = row.last_error or "no error"
            problems[row.trigger_id] = f"{where}: {row.status} after {row.attempts} attempts, {error}"
        elif row.delivery_id not in arrivals:
            problems[row.trigger_id] = f"{where}: said to be delivered, but never arrived"
    return len({row.trigger_id for row in rows}) - len(problems), list(problems.values())
