"""CPU seconds of the stack's processes, child processes included, over an interval."""

from __future__ import annotations

from collections.abc import Mapping

import psutil


class CpuUsage:
    """Reads at its start and at `stop`. A child that ended in between is counted up to the last `sample`."""

    def __init__(self, roots: Mapping[str, int]) -> None:
        """roots: program name -> pid."""
        self._roots = dict(roots)
        self._first: dict[tuple[str, int, float], float] = {}
        self._last: dict[tuple[str, int, float], float] = {}
        self._read(self._first)
        self._last = dict(self._first)

    def sample(self) -> None:
        self._read(self._last)

    def seconds(self) -> dict[str, float]:
        """Program -> CPU seconds since the start, rounded to hundredths, largest first."""
        self.sample()
        used: dict[str, float] = dict.fromkeys(self._roots, 0.0)
        for key, seconds in self._last.items():
            used[key[0]] += seconds - self._first.get(key, 0.0)
        return {name: round(seconds, 2) for name, seconds in sorted(used.items(), key=lambda item: -item[1])}

    def _read(self, into: dict[tuple[str, int, float], float]) -> None:
        for name, pid in self._roots.items():
            try:
                root = psutil.Process(pid)
                family = [root, *root.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
            for process in family:
                try:
                    times = process.cpu_times()
                    into[name, process.pid, process.create_time()] = times.user + times.system
                except psutil.NoSuchProcess:
                    continue
