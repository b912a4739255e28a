"""What the engine needs of vLLM, and nothing else: the seam at which tests put another in its place."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from copydesk.common.errors import CopydeskError


class Ended(enum.StrEnum):
    """Why vLLM ended an answer, in its own words."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """In how many passes guesses were verified for a request, how many they were, and how many were right."""

    verified: int = 0
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """More of an answer; the last part has `ended`, and in the whole of them each token comes once.

    An answer that was ended by a stop token has it as its last token, and `stop_id` names it.
    """

    tokens: list[int]
    ended: Ended | None = None
    stop_id: int | None = None
    acceptance: Acceptance = Acceptance()


class CoreLostError(CopydeskError):
    """The process in which vLLM computes is gone: there is no going on."""

    def __init__(self) -> None:
        super().__init__("vLLM's engine core has died; its own output says why")


class Client(Protocol):
    """Requests to vLLM, on one event loop."""

    @property
    def vocabulary(self) -> int:
        """How many tokens the model knows."""
        ...

    @property
    def dead(self) -> bool:
        """Whether the process that computes is gone."""
        ...

    def on_step(self, heard: Callable[[], None]) -> None:
        """Have `heard` called after each step of the model, whether or not it made a token for anyone."""
        ...

    def generate(
        self, request_id: str, prompt: list[int], parameters: dict[str, Any], *, stream: bool
    ) -> AsyncIterator[Part]:
        """Answer; without `stream` in a single part. `abort` makes the part that comes next the last.

        Raises `CoreLostError`, and whatever else keeps vLLM from answering this request.
        """
        ...

    async def abort(self, request_id: str) -> None:
        """End a request; one that is unknown or has ended is ignored."""
        ...

    def close(self, timeout: float) -> None:
        """End the processes that compute, by force after `timeout` seconds."""
        ...
