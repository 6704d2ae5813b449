"""The server: its tables, what is committed, who holds which session's lock."""

from __future__ import annotations

from collections.abc import Callable

from ports.clock import Clock
from simulation.database.schema import Schema
from simulation.database.table import Row, Table
from simulation.database.transaction import Transaction
from simulation.turns import Turns


class Session:
    """A connection that outlives its transactions: what it holds by advisory lock ends with it."""

    __slots__ = ("held", "is_over")

    def __init__(self) -> None:
        self.held: list[str] = []
        self.is_over = False


class MemoryDatabase(Schema):
    """One environment's database. Every store of a simulation shares it, each call takes its turns."""

    def __init__(self, clock: Clock, turns: Turns) -> None:
        """clock: the server's own, for now()."""
        super().__init__()
        self.clock = clock
        self.turns = turns
        self.commits = 0  # that wrote something
        self.on_change: Callable[[str, Row | None, Row], None] = _nobody_looks  # table, before, after: at each commit
        self.waiting = 0  # statements that wait for a lock: older versions are kept for them
        self.deadlocks = 0  # broken by rolling one of the transactions back
        self._advisory: dict[str, Session] = {}

    def transaction(self) -> Transaction:
        return Transaction(self)

    def rows(self, table: str) -> list[Row]:
        """What is committed in a table, in order of insertion, without a turn: for audits."""
        found: Table = getattr(self, table)
        return found.committed()

    # -- advisory locks: not of a transaction, never waited for
    def try_advisory_lock(self, session: Session, name: str) -> bool:
        """Whether `session` holds it now."""
        holder = self._advisory.setdefault(name, session)
        if holder is session:
            session.held.append(name)
        return holder is session

    def end_session(self, session: Session) -> None:
        """As the server does when a client's process or connection ends. Harmless when repeated."""
        session.is_over = True
        for name in session.held:
            self._advisory.pop(name, None)
        session.held = []


def _nobody_looks(table: str, before: Row | None, after: Row) -> None: ...
