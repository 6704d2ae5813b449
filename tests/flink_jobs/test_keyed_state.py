"""The state adapter over PyFlink's own state class, and over a map that refuses the calls that are faulty there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
from pyflink.fn_execution.coders import BinaryCoder, CharCoder
from pyflink.fn_execution.state_impl import InternalSynchronousMapRuntimeState

from flink_jobs.keyed_state import FlinkMap, KeyedState, StateUseError


class StrictMap:
    """A map that raises on every call that goes wrong in PyFlink 2.3 (docs/flink.md, "State")."""

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}
        self._changes = 0

    def get(self, key: str) -> bytes | None:
        return self._entries.get(key)

    def put(self, key: str, value: bytes) -> None:
        self._changes += 1
        self._entries[key] = value

    def remove(self, key: str) -> None:
        self._changes += 1
        self._entries.pop(key, None)

    def items(self) -> Iterator[tuple[str, bytes]]:
        seen = self._changes
        for entry in list(self._entries.items()):
            if seen != self._changes:
                raise AssertionError("changed while it was iterated")
            yield entry

    def _faulty(self, *_: Any) -> NoReturn:
        raise AssertionError("a call that is faulty in PyFlink")

    clear = is_empty = put_all = contains = keys = values = _faulty


class JvmSide:
    """What answers PyFlink's map state: the committed entries, in batches of two as the JVM would send them."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.writes = 0

    def blocking_get(self, _: Any, key: str, *__: Any) -> tuple[bool, bytes | None]:
        return key in self.entries, self.entries.get(key)

    def lazy_iterator(self, _: Any, __: Any, *coders_and_written: Any) -> Iterator[tuple[str, tuple[str, bytes]]]:
        written = coders_and_written[-1]
        for key, value in list(self.entries.items()):
            if key not in written:
                yield key, (key, value)

    def extend(self, _: Any, changes: list[tuple[int, str, bytes]], *__: Any) -> None:
        self.writes += 1
        for flag, key, value in changes:
            if flag == 0:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value


def pyflink_map(jvm: JvmSide, write_cache: int) -> FlinkMap:
    state: FlinkMap = InternalSynchronousMapRuntimeState(jvm, None, CharCoder(), BinaryCoder(), write_cache)
    return state


@pytest.fixture(params=["strict", "pyflink, written at once", "pyflink, written in batches"])
def flink_map(request: pytest.FixtureRequest) -> FlinkMap:
    if request.param == "strict":
        return StrictMap()
    return pyflink_map(JvmSide(), 1 if "once" in request.param else 4)


def test_it_reads_its_own_writes_and_removals(flink_map: FlinkMap) -> None:
    state = KeyedState(flink_map)
    for number in range(10):
        state.put(f"block {number}", b"\x01%d" % number)
    for number in range(0, 10, 2):
        state.remove(f"block {number}")
    state.remove("never there")
    state.put("block 4", b"\x01again")
    state.put("block 5", b"\x01other")
    assert state.get("block 2") is None
    assert state.get("block 4") == b"\x01again"
    expected = {"block 1": b"\x011", "block 3": b"\x013", "block 4": b"\x01again", "block 5": b"\x01other"}
    assert dict(state.items()) == expected | {"block 7": b"\x017", "block 9": b"\x019"}


def test_everything_can_be_removed_and_written_again(flink_map: FlinkMap) -> None:
    state = KeyedState(flink_map)
    state.put("head", b"\x01")
    for key, _ in list(state.items()):
        state.remove(key)
    assert list(state.items()) == []
    state.put("head", b"\x02")
    assert list(state.items()) == [("head", b"\x02")]


def test_a_write_during_an_iteration_is_refused(flink_map: FlinkMap) -> None:
    state = KeyedState(flink_map)
    state.put("a", b"\x01")
    state.put("b", b"\x01")
    entries = state.items()
    next(entries)
    with pytest.raises(StateUseError, match="put while the state is being iterated") as caught:
        state.put("c", b"\x01")
    assert caught.value.entry == "c"
    with pytest.raises(StateUseError, match="remove while"):
        state.remove("a")
    entries.close()
    state.put("c", b"\x01")  # a left iteration is over
    assert {key for key, _ in state.items()} == {"a", "b", "c"}


@pytest.mark.parametrize("value", [None, b"", bytearray(b"\x01"), "text"])
def test_only_versioned_bytes_are_kept(value: Any) -> None:
    with pytest.raises(StateUseError):
        KeyedState(StrictMap()).put("head", value)


def test_writes_of_a_frame_reach_the_jvm_together() -> None:
    jvm = JvmSide()
    flink_map = pyflink_map(jvm, 100)
    state = KeyedState(flink_map)
    for number in range(20):
        state.put(f"page {number}", b"\x01")
    assert jvm.writes == 0
    flink_map.commit()  # type: ignore[attr-defined] # PyFlink does at a bundle's end and when it evicts a key
    assert jvm.writes == 1
    assert len(jvm.entries) == 20
