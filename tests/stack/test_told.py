"""What services tell of themselves in their health files, as the status reads it."""

from __future__ import annotations

import json
from pathlib import Path

from stack.health import read_detail
from stack.lag import read_positions


def test_details_and_positions_of_whatever_is_there(tmp_path: Path) -> None:
    path = tmp_path / "archive.json"
    assert read_detail(path) == {}
    path.write_text("{half")
    assert read_detail(path) == {}
    path.write_text(json.dumps({"ok": False, "detail": "a text"}))
    assert read_detail(path) == {}
    assert read_positions({}) == {}
    path.write_text(json.dumps({"ok": True, "detail": {"positions": {"0": 7, "3": 9}}}))
    assert read_positions(read_detail(path)) == {0: 7, 3: 9}
