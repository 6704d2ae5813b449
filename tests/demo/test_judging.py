"""The demo calls an alert delivered only when every channel says so and every message is there."""

from __future__ import annotations

from sql.progress_store import DeliveryRow
from stack.demo.inbox import judge_deliveries


def _row(trigger: str, channel: int, status: str = "DELIVERED") -> DeliveryRow:
    return DeliveryRow(trigger, 7, channel, "email", "ada@example.com", status, 1, None)


def test_only_what_arrived_on_every_channel_counts() -> None:
    rows = [_row("t1", 1), _row("t1", 2), _row("t2", 1), _row("t3", 1), _row("t3", 2, "DEAD")]
    delivered, problems = judge_deliveries(rows, {"t1_1": 1, "t1_2": 2, "t3_1": 1, "t3_2": 1})
    assert delivered == 1
    assert sorted(problems) == [
        "alert 7, email to ada@example.com: DEAD after 1 attempts, no error",
        "alert 7, email to ada@example.com: said to be delivered, but never arrived",
    ]
