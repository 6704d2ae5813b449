"""The one error that people see: what is wrong, where, and what to do."""

from __future__ import annotations


class StackError(Exception):
    """A fault that a person can act on; the command line prints it without a traceback."""

    def __init__(self, problem: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.problem = problem
        self.where = where
        self.remedy = remedy
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        text = self.problem.rstrip(".")
        if self.where:
            text += f" ({self.where})"
        if self.remedy:
            text += f": {self.remedy.rstrip('.')}"
        return text + "."


class ComponentDiedError(StackError):
    """A program of the stack ended while it was being started."""

    def __init__(self, program: str, log_path: str, last_lines: list[str]) -> None:
        self.program = program
        self.log_path = log_path
        self.last_lines = last_lines
        super().__init__(
            f"{program} does not stay up", where=f"log {log_path}", remedy="its last lines:\n" + "\n".join(last_lines)
        )
