"""Ports: chosen once, kept, moved away from strangers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.errors import StackError
from stack.listening_ports import Ports, find_holder, is_free


@pytest.fixture
def stranger() -> Iterator[int]:
    """A port on which this very process listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_choice_is_kept_in_the_home(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    port, note = Ports(path).choose("kafka")
    assert note is None
    assert Ports(path).choose("kafka") == (port, None)
    assert Ports(path).get("kafka") == port


def test_names_never_share_a_port(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "ports.json")
    chosen = [ports.choose(f"part-{number}")[0] for number in range(50)]
    assert len(set(chosen)) == 50
    assert all(20_000 <= port <= 32_000 for port in chosen)


def test_moves_away_from_a_stranger_and_says_who(tmp_path: Path, stranger: int) -> None:
    path = tmp_path / "ports.json"
    path.write_text(f'{{"kafka": {stranger}}}')
    port, note = Ports(path).choose("kafka")
    assert port != stranger
    assert note is not None
    assert f"port {stranger} is taken by pid {os.getpid()}" in note
    assert Ports(path).get("kafka") == port


def test_pinned_port_is_not_moved(tmp_path: Path, stranger: int) -> None:
    with pytest.raises(StackError, match=rf"port {stranger} is taken by pid {os.getpid()}.*main_api.*stop it"):
        Ports(tmp_path / "ports.json").choose("main_api", pinned=stranger)


def test_unknown_name_is_named(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no port has been chosen for kafka"):
        Ports(tmp_path / "ports.json").get("kafka")


def test_forgotten_port_can_go_to_another(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "ports.json")
    ports.choose("x_api")
    ports.forget("x_api")
    with pytest.raises(StackError):
        ports.get("x_api")


def test_holder_of_a_free_port_is_unknown(stranger: int) -> None:
    assert not is_free(stranger)
    assert find_holder(stranger).pid == os.getpid()
    assert find_holder(1).pid is None
