"""The demo from beginning to end: set up, play thirteen years, compare with the oracle, show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from contracts.event_time import parse_event_time
from stack.demo.inbox import judge_deliveries, read_arrivals
from stack.demo.killing import KillEach
from stack.demo.programs import Receivers
from stack.demo.script import OWNERS, demo_operations
from stack.files import write_json
from stack.progress import console, say, step
from stack.replay.oracle import Comparison, compare_answers, write_answer
from stack.replay.own_environment import OwnEnvironment
from stack.replay.recording import write_recording
from stack.replay.scenario import Create, Operation, Tick
from stack.replay.stack_engine import FeedReplay, Rows

FEED: Final = "stocks"
BUCKETS: Final = 4
SHOWN_TRIGGERS: Final = 8
SHOWN_DIFFERENCES: Final = 20
PLAIN_PROGRESS_STEPS: Final = 10
# Who hears how; cleo has both.
MAIL_OWNERS: Final = ("ada", "cleo", "dana")
WEBHOOK_OWNERS: Final = ("ben", "cleo")


@dataclass(frozen=True)
class DemoResult:
    """`delivered`: triggered alerts whose every channel was delivered and has arrived."""

    ticks: int
    statuses: Mapping[str, int]
    delivered: int
    repeats: int
    wrong: int
    problems: list[str]
    sentences: list[str]

    @property
    def is_good(self) -> bool:
        return self.wrong == 0 and self.delivered == self.statuses.get("TRIGGERED", 0)

    def as_json(self) -> dict[str, int]:
        """The demo's last line."""
        count = self.statuses.get
        return {
            "ticks": self.ticks, "alerts": sum(self.statuses.values()), "triggered": count("TRIGGERED", 0),
            "expired": count("EXPIRED", 0), "cancelled": count("CANCELLED", 0), "active": count("ACTIVE", 0),
            "delivered": self.delivered, "wrong": self.wrong,
        }  # fmt: skip


class Demo:
    """One run in an environment that is up."""

    def __init__(self, own: OwnEnvironment, receivers: Receivers, kill_each: bool = False) -> None:
        self._own = own
        self._receivers = receivers
        self._kill_each = kill_each
        self._recorded: list[Operation] = []

    def run(self) -> DemoResult:
        with step("making owners and channels"):
            open_channels(self._own, self._receivers)
        replay = FeedReplay(self._own, FEED, BUCKETS)
        self._play(replay)
        with step("waiting until every message is delivered"):
            self._await_deliveries()
        with step("asking the oracle"):
            rows = [*replay.rows(), {"counts": replay.counts()}]
            comparison = self._compare(rows)
        return self._judge(rows, comparison)

    def _play(self, replay: FeedReplay) -> None:
        operations = list(demo_operations())
        killer = KillEach(self._own.stack, len(operations), replay.barrier) if self._kill_each else None
        creates: list[Create] = []
        with _Steps("replaying 2000-2013", len(operations)) as steps:
            for number, operation in enumerate(operations):
                if isinstance(operation, Create):
                    creates.append(operation)
                else:
                    self._create(replay, creates)
                    if killer is not None:
                        killer.at(number)
                    replay.play(operation)
                    self._recorded.append(operation)
                    creates = []
                steps.advance()
            self._create(replay, creates)
            replay.finish()
        if killer is not None:
            say(f"killed {len(killer.killed)} of {len(killer.victims)}: {', '.join(killer.killed)}")

    def _create(self, replay: FeedReplay, creates: list[Create]) -> None:
        """The API's market clock says when; the recording takes it over, so that the oracle knows."""
        for create, alert in zip(creates, replay.create(creates), strict=True):
            self._recorded.append(replace(create, created_at_ms=parse_event_time(alert["created_at"])))

    def _await_deliveries(self) -> None:
        def missing() -> str:
            without_rows, waiting = self._own.barriers.read(lambda store: store.open_deliveries())
            if not without_rows and not waiting:
                return ""
            return f"{without_rows} triggers without delivery rows, {waiting} deliveries not ended"

        self._own.barriers.wait("messages are not delivered", missing)

    def _compare(self, rows: Rows) -> Comparison:
        folder = self._receivers.folder
        scenario, expected, actual = (folder / f"{name}.jsonl" for name in ("operations", "expected", "actual"))
        write_recording(scenario, self._recorded)
        actual.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        write_answer(scenario, expected)
        return compare_answers(expected, actual)

    def _judge(self, rows: Rows, comparison: Comparison) -> DemoResult:
        deliveries = self._own.barriers.read(lambda store: store.deliveries())
        arrivals = read_arrivals(self._receivers.mailbox_url, self._receivers.receiver_url)
        delivered, problems = judge_deliveries(deliveries, arrivals)
        if comparison.wrong:
            problems += comparison.report.splitlines()
        return DemoResult(
            ticks=sum(isinstance(operation, Tick) for operation in self._recorded),
            statuses=Counter(row["status"] for row in rows if "id" in row),
            delivered=delivered,
            repeats=sum(times - 1 for times in arrivals.values()),
            wrong=comparison.wrong,
            problems=problems,
            sentences=self._sentences(),
        )

    def _sentences(self) -> list[str]:
        """Some triggers in words, spread over the years."""
        alerts = [alert for owner in OWNERS for alert in self._own.client_of(owner).alerts() if alert["trigger"]]
        alerts.sort(key=lambda alert: alert["trigger"]["event_time"])
        return [alert["trigger"]["summary"] for alert in alerts[:: max(1, len(alerts) // SHOWN_TRIGGERS)]]


def open_channels(own: OwnEnvironment, receivers: Receivers) -> None:
    """Channels of each owner; the receiver gets the signing secrets that the API shows once."""
    for owner in MAIL_OWNERS:
        own.client_of(owner).request("POST", "/v1/channels", json={"kind": "email", "address": f"{owner}@demo.example"})
    secrets: dict[str, Any] = {}
    for owner in WEBHOOK_OWNERS:
        body = {"kind": "webhook", "url": f"{receivers.receiver_url}/hooks/{owner}"}
        secrets[owner] = own.client_of(owner).request("POST", "/v1/channels", json=body)["secret"]
    write_json(receivers.secrets_file, secrets, 0o600)


class _Steps:
    """A bar on a terminal, a line each tenth elsewhere."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total, self._done = title, total, 0
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console,
            disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task(title, total=total)

    def __enter__(self) -> _Steps:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self) -> None:
        self._done += 1
        self._bar.advance(self._task)
        if not console.is_terminal and self._done * PLAIN_PROGRESS_STEPS % self._total < PLAIN_PROGRESS_STEPS:
            say(f"{self._title}: {self._done} of {self._total}")


def show_result(result: DemoResult) -> None:
    """For people, on stderr."""
    table = Table("", "alerts")
    figures = result.as_json()
    for name in ("alerts", "triggered", "expired", "cancelled", "active", "delivered", "wrong"):
        table.add_row(name, str(figures[name]))
    console.print(table)
    for sentence in result.sentences:
        say(f"  {sentence}")
    if result.repeats:
        say(f"{result.repeats} messages came more than once, each under the id of its delivery")
    for problem in result.problems[:SHOWN_DIFFERENCES]:
        say(f"PROBLEM: {problem}")
