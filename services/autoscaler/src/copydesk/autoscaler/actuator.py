"""Who makes a fleet as large as was decided: the seam to Kubernetes, to a local fleet, or to nobody."""

from __future__ import annotations

from typing import Protocol

from copydesk.common.errors import CopydeskError


class ActuatorError(CopydeskError):
    """The size of a fleet could not be read or set: of which `model`, and why (`reason`).

    `fenced` says that a newer leader has written since: whoever gets this one leads no more.
    """

    def __init__(self, model: str, reason: str, *, fenced: bool = False) -> None:
        self.model = model
        self.reason = reason
        self.fenced = fenced
        super().__init__(f"{model}: {reason}")


class Actuator(Protocol):
    """Reads and sets how many pods of a model are asked for. Both calls end within a few seconds."""

    async def start(self) -> None:
        """Begin; what is not there yet is waited for by the calls that need it."""
        ...

    async def size(self, model: str) -> int:
        """Return how many pods are asked for, whoever asked; raise `ActuatorError` if nobody can tell."""
        ...

    async def resize(self, model: str, replicas: int, epoch: int) -> int:
        """Ask for so many pods as the leader of `epoch`; return how many are asked for now.

        Raises:
            ActuatorError: It was not written; `fenced`, because a leader with a larger epoch has written before.
        """
        ...

    async def close(self) -> None:
        """Give back what `start` took; the fleet stays as it is."""
        ...


class Leadership(Protocol):
    """Says whether this autoscaler is the one that acts; the others observe, and decide for themselves only."""

    @property
    def epoch(self) -> int:
        """The epoch of the present or last term, larger than that of any leader before; 0 before the first."""
        ...

    def is_leader(self, now: float) -> bool:
        """Say whether this one leads at `now`, in monotonic seconds."""
        ...

    async def start(self) -> None:
        """Stand for election."""
        ...

    async def close(self) -> None:
        """Stand down."""
        ...
