"""What a statement or a commit can end with, named as the server's errors that they stand for."""

from __future__ import annotations


class DatabaseAwayError(RuntimeError):
    """The connection is broken; of a commit, its caller can't know whether it took place (psycopg.OperationalError)."""


class DeadlockVictimError(DatabaseAwayError):
    """Two transactions wait for each other; this one was rolled back (a psycopg.OperationalError too)."""

    def __init__(self, table: str) -> None:
        super().__init__(f"deadlock: waits for a row of {table} whose holder waits for this transaction")
        self.table = table


class ConstraintError(RuntimeError):
    """A row that its table must not hold."""

    def __init__(self, table: str, what: str) -> None:
        super().__init__(f"{table}: {what}")
        self.table = table


class UniqueViolationError(ConstraintError):
    """There is a row with these key columns already."""

    def __init__(self, table: str, columns: tuple[str, ...], key: object) -> None:
        super().__init__(table, f"({', '.join(columns)}) = {key!r} is there already")
        self.columns = columns


class ForeignKeyViolationError(ConstraintError):
    """A column names a row that does not exist."""

    def __init__(self, table: str, column: str, key: object) -> None:
        super().__init__(table, f"{column} = {key!r} does not exist")
        self.column = column


class CheckViolationError(ConstraintError):
    """A row that breaks a CHECK."""


class TransactionOverError(RuntimeError):
    """A statement in a transaction that has ended or failed: its caller went on after an error."""
