"""What a mutant is, and the ways to make one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from simulation.database.table import Record, Row
from simulation.database.transaction import Transaction
from simulation.plan import FaultKind, Plan, Role
from simulation.plans import plan_of


@dataclass(frozen=True, slots=True)
class Mutant:
    """`breaks()`: while it is open, the product has this fault. `fault`: in one sentence.

    needs: without this fault in a plan nobody can tell it from the product, so only such plans are tried.
    plan_of: the plans that it is looked for in; `step`: one seed of so many is tried.
    """

    name: str
    fault: str
    breaks: Callable[[], AbstractContextManager[None]]
    needs: tuple[FaultKind, Role] | None = None
    plan_of: Callable[[int], Plan] = plan_of
    step: int = 1


@contextmanager
def swapped(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """`owner.name` becomes what `make` makes of it."""
    before = owner.__dict__[name]
    setattr(owner, name, make(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


class Careless:
    """A transaction whose statements judge a row as if some of its columns held other values."""

    def __init__(self, transaction: Transaction, pretended: Mapping[str, Any]) -> None:
        self._transaction, self._pretended = transaction, pretended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def take(self, record: Record, holds: Callable[[Row], bool]) -> Row | None:
        return self._transaction.take(record, lambda row: holds({**row, **self._pretended}))


class Without:
    """A statement that forgets to write into one table."""

    def __init__(self, table: str, right: Callable[..., Any]) -> None:
        self._table, self._right = table, right

    def __call__(self, database: Any, tx: Any, *rest: Any, **given: Any) -> Any:
        return self._right(database, _Mute(tx, getattr(database, self._table)), *rest, **given)


class _Mute:
    def __init__(self, transaction: Transaction, table: Any) -> None:
        self._transaction, self._table = transaction, table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def insert(self, table: Any, values: Row) -> Row:
        return values if table is self._table else self._transaction.insert(table, values)


def careless(owner: Any, statement: str, **pretended: Any) -> Callable[[], AbstractContextManager[None]]:
    """A statement that leaves a condition out of its WHERE."""

    def make(right: Callable[..., Any]) -> Callable[..., Any]:
        return lambda database, tx, *rest, **given: right(database, Careless(tx, pretended), *rest, **given)

    return lambda: swapped(owner, statement, make)


def skipped(owner: Any, name: str, result: Any = None) -> Callable[[], AbstractContextManager[None]]:
    """A step that is left out."""
    return lambda: swapped(owner, name, lambda right: lambda *_, **__: result)


def changed(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], AbstractContextManager[None]]:
    """A step that does something else."""
    return lambda: swapped(owner, name, make)
