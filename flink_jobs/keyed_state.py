"""A core's StateMap over Flink's MapState: the calls that work in PyFlink 2.3, and nothing else.

Never used, because they are wrong there: `clear` (a put and a remove after it raise), `is_empty` (wrong after
removals), `put_all` of a dict (corrupts), `contains` (False for None). See docs/flink.md, "State".
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Protocol


class FlinkMap(Protocol):
    """The part of `pyflink.datastream.state.MapState` that is sound. It always speaks of the current key."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def remove(self, key: str) -> None: ...

    def items(self) -> Iterator[tuple[str, bytes]]: ...


class StateUseError(RuntimeError):
    """A core used its state against the rules of StateMap; `entry` is the state entry. Always a fault in the core."""

    def __init__(self, what: str, entry: str) -> None:
        super().__init__(f"{what} (state entry {entry!r}); this is a fault in the core, the job must not go on")
        self.entry = entry


class KeyedState:
    """StateMap of whatever key is being processed; one object serves every core of an operator.

    Raises StateUseError for a write during `items()` and for a value that isn't non-empty bytes.
    """

    def __init__(self, flink_map: FlinkMap) -> None:
        self._map = flink_map
        self._open_iterations = 0

    def get(self, key: str) -> bytes | None:
        return self._map.get(key)

    def put(self, key: str, value: bytes) -> None:
        if self._open_iterations:
            raise StateUseError("put while the state is being iterated", key)
        if type(value) is not bytes or not value:
            raise StateUseError(f"a value must be bytes that begin with a version, not {type(value).__name__}", key)
        self._map.put(key, value)

    def remove(self, key: str) -> None:
        if self._open_iterations:
            raise StateUseError("remove while the state is being iterated", key)
        self._map.remove(key)

    def items(self) -> Generator[tuple[str, bytes], None, None]:
        self._open_iterations += 1
        try:
            yield from self._map.items()
        finally:
            self._open_iterations -= 1
