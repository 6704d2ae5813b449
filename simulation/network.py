"""What lies behind the notifier: threads that send, and receivers that count what reaches them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from finalizer.channels.outcome import Delivery, Outcome, dead, delivered, retry
from simulation.plan import FaultKind, Role
from simulation.scheduler import Scheduler, Task

T = TypeVar("T")
SLOW_MS = 130_000  # beyond a claim's lease


class Receivers:
    """Every owner's mail servers and web hooks."""

    def __init__(self) -> None:
        self.bodies: dict[str, set[bytes]] = {}
        self.received: Counter[str] = Counter()
        self.foreign: list[str] = []
        self.owner_of: dict[str, int] = {}  # address -> owner

    def take(self, delivery: Delivery) -> None:
        self.received[delivery.delivery_id] += 1
        self.bodies.setdefault(delivery.delivery_id, set()).add(delivery.body)
        if self.owner_of[delivery.address] != delivery.owner_id:
            self.foreign.append(delivery.delivery_id)


class SimulatedChannel:
    """finalizer.channels.outcome.Channel."""

    def __init__(self, receivers: Receivers, scheduler: Scheduler, fault_of: Callable[[], FaultKind | None]) -> None:
        self._receivers, self._scheduler, self._fault_of = receivers, scheduler, fault_of

    def send(self, delivery: Delivery) -> Outcome:
        self._scheduler.pause("send.request")
        fault = self._fault_of()
        if fault is FaultKind.SEND_REFUSED:
            return retry("429", after_seconds=1.0)
        if fault is FaultKind.SEND_DEAD:
            return dead("410", disable_channel=True)
        self._receivers.take(delivery)
        if fault is FaultKind.SEND_SLOW:
            self._scheduler.sleep(SLOW_MS)
        self._scheduler.pause("send.answer")
        if fault is FaultKind.SEND_LOST_ANSWER:
            return retry("timed out")
        return delivered()


class SimulatedExecutor(Executor):
    """The threads of one notifier: they die with it."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler, self._name = scheduler, name
        self._tasks: list[Task] = []
        self._started = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            future.set_result(fn(*args, **kwargs))

        self._started += 1
        self._tasks = [task for task in self._tasks if not task.greenlet.dead]
        self._tasks.append(self._scheduler.spawn(f"{self._name}.{self._started}", Role.SEND, work))
        return future

    def is_sending(self) -> bool:
        return any(not task.greenlet.dead for task in self._tasks)

    def kill(self) -> None:
        for task in self._tasks:
            self._scheduler.kill(task)
