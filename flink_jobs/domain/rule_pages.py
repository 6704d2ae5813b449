"""Rules as columns, and the packed pages that hold them in the state.

A batch of rules is an int64 array of shape (COLUMNS, n): row c is column c. Sorted batches are in the order
(key, threshold, alert_id). A page is `<version u1><3 zero bytes><count u4>` and then the columns, one after another.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import numpy as np

from flink_jobs.domain.frame_error import StateError
from flink_jobs.domain.state import StateMap
from flink_jobs.domain.threshold_keys import Int64s

KEY, THRESHOLD, ALERT_ID, VERSION, CREATED_AT_MS, ACTIVE_FROM_MS, EXPIRES_AT_MS = range(7)
COLUMNS: Final = 7

PAGE_VERSION: Final = 1
PAGE_ROWS: Final = 512
CACHED_PAGES: Final = 16
_HEADER: Final = np.dtype([("version", "u1"), ("zero", "u1", 3), ("count", "<u4")])


def sorted_rules(rules: Int64s) -> Int64s:
    """The batch in index order."""
    return np.ascontiguousarray(rules[:, np.lexsort((rules[ALERT_ID], rules[THRESHOLD], rules[KEY]))])


def encode_page(rules: Int64s) -> bytes:
    """A page's bytes."""
    header = np.zeros(1, _HEADER)
    header["version"], header["count"] = PAGE_VERSION, rules.shape[1]
    return header.tobytes() + np.ascontiguousarray(rules, "<i8").tobytes()


def decode_page(blob: bytes, name: str) -> Int64s:
    """A page's rules, as a read-only view. `name` is for StateError."""
    version = blob[0] if blob else 0
    if version != PAGE_VERSION:
        raise StateError(name, f"is of version {version}, this code reads {PAGE_VERSION}")
    count = int.from_bytes(blob[4:8], "little")
    return np.frombuffer(blob, "<i8", offset=_HEADER.itemsize).reshape(COLUMNS, count)


def page_key(run_id: int, page: int) -> str:
    """State key of page `page` of a run."""
    return f"page/{run_id:x}/{page:x}"


class PageReader:
    """Reads pages through a small cache; counts what it read from the state."""

    def __init__(self, state: StateMap) -> None:
        self._state = state
        self._cache: OrderedDict[str, Int64s] = OrderedDict()
        self.pages_read = 0
        self.bytes_read = 0

    def page(self, run_id: int, page: int) -> Int64s:
        """Rules of one page."""
        name = page_key(run_id, page)
        found = self._cache.get(name)
        if found is not None:
            self._cache.move_to_end(name)
            return found
        blob = self._state.get(name)
        if blob is None:
            raise StateError(name, "is missing, though the header names its run")
        self.pages_read += 1
        self.bytes_read += len(blob)
        found = self._cache[name] = decode_page(blob, name)
        if len(self._cache) > CACHED_PAGES:
            self._cache.popitem(last=False)
        return found
