"""Where snapshots come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from copydesk.common.errors import CopydeskError
from copydesk.common.messages import EndpointsSnapshot

OnSnapshot = Callable[[EndpointsSnapshot], None]


class OriginError(CopydeskError):
    """Nothing can be heard from there: it carries what is wrong, and what to change."""

    def __init__(self, problem: str, hint: str) -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem}; {hint}")


class Origin(Protocol):
    """Something that tells snapshots, every model's when asked first, and each change after that."""

    @property
    def connected(self) -> bool:
        """Whether it can be heard at present."""

    @property
    def trouble(self) -> str:
        """What keeps it from being heard, as far as it knows; empty if nothing does."""

    async def start(self, on_snapshot: OnSnapshot) -> None:
        """Begin to call `on_snapshot`; raise `OriginError` if nothing can be heard."""

    async def close(self) -> None:
        """Let go of what was opened."""
