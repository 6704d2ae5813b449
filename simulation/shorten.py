"""A failing plan made shorter: parts are left out as long as it still fails (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from simulation.plan import Plan

PARTS: Final = ("faults", "words", "calls", "messages")
MAX_RUNS: Final = 400


def shorten(plan: Plan, fails: Callable[[Plan], bool], max_runs: int = MAX_RUNS) -> Plan:
    """`fails(plan)` holds, and holds for what is returned."""
    runs = 0
    changed = True
    while changed and runs < max_runs:
        changed = False
        for part in PARTS:
            items: Sequence[Any] = getattr(plan, part)
            size = len(items)
            while size >= 1:
                at = 0
                while at < len(items) and runs < max_runs:
                    fewer = [*items[:at], *items[at + size :]]
                    changes: dict[str, Any] = {part: fewer}
                    candidate = replace(plan, **changes)
                    runs += 1
                    if fails(candidate):
                        plan, items, changed = candidate, fewer, True
                    else:
                        at += size
                size //= 2
    return plan


def describe(plan: Plan) -> str:
    """One line an item."""
    lines = [f"feeds: {plan.feeds}", f"instances: {dict(plan.instances)}, channels: {list(plan.channels)}"]
    lines += [f"message +{message.after_ms} ms {dict(message.body)}" for message in plan.messages]
    for call in plan.calls:
        what = dict(call.request or {}) if call.action == "create" else f"of create {call.alert}"
        lines.append(f"call by client {call.client} +{call.after_ms} ms {call.action} as owner {call.owner} {what}")
    lines += [f"operator +{word.after_ms} ms {word.action} {word.symbol} {dict(word.arguments)}" for word in plan.words]
    lines += [f"fault from turn {fault.turn}: {fault.kind} of {fault.role} ({fault.amount})" for fault in plan.faults]
    return "\n".join(lines)
