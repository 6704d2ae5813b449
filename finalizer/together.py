"""Several services in one process, one step of each after the other."""

from __future__ import annotations

from typing import Any

from ports.service import Service


class Together:
    """Service."""

    def __init__(self, *services: Service) -> None:
        self._services = services

    def step(self) -> bool:
        """A bounded step of each, whatever the others found."""
        worked = [service.step() for service in self._services]
        return any(worked)

    def detail(self) -> dict[str, Any]:
        return {name: figure for service in self._services for name, figure in service.detail().items()}

    def close(self) -> None:
        for service in self._services:
            service.close()
