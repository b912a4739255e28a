"""Scaling that nobody does: decisions are made, published and logged for people to look at."""

from __future__ import annotations

from collections.abc import Callable

from copydesk.autoscaler.actuator import ActuatorError


class DryActuator:
    """Takes the pods that are there for those that are asked for; whoever really scales goes on doing so."""

    def __init__(self, present: Callable[[str], int | None]) -> None:
        self._present = present

    async def start(self) -> None:
        """Do nothing."""

    async def size(self, model: str) -> int:
        """Return how many pods discovery sees."""
        size = self._present(model)
        if size is None:
            raise ActuatorError(
                model, "discovery has not been heard, and nothing else says how many pods there are"
            )
        return size

    async def resize(self, model: str, replicas: int, epoch: int) -> int:
        """Do nothing."""
        return await self.size(model)

    async def close(self) -> None:
        """Do nothing."""


class Alone:
    """The leadership of one that is the only one, under an epoch that was given (Unix milliseconds)."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def is_leader(self, now: float) -> bool:
        """Say yes."""
        return True

    async def start(self) -> None:
        """Do nothing: nobody else stands."""

    async def close(self) -> None:
        """Do nothing."""
