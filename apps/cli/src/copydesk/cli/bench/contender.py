"""What the comparison asks of every engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from copydesk.cli.bench.engine_process import EngineProcess
from copydesk.cli.bench.setting import Setting
from copydesk.cli.bench.workload import Prompt


@dataclass(frozen=True, slots=True)
class Counts:
    """What an engine has counted since it started: answered requests and passes of the model for them."""

    requests: float
    passes: float

    def since(self, before: Counts) -> float | None:
        """Return the passes a request between two moments; None when no request was counted."""
        requests = self.requests - before.requests
        return (self.passes - before.passes) / requests if requests > 0 else None


class Contender(Protocol):
    """An engine that runs in one setting."""

    @property
    def setting(self) -> Setting:
        """Which engine, and how it was started."""
        ...

    @property
    def process(self) -> EngineProcess:
        """What to freeze, thaw and kill."""
        ...

    @property
    def version(self) -> str:
        """Its version, known once it is ready."""
        ...

    async def wait_ready(self) -> None:
        """Return once it answers; raises `StartError`."""
        ...

    async def answer(self, prompt: Prompt) -> str:
        """Return the answer to one request: its text, or its tokens in a form that can be compared.

        Raises:
            RequestFailedError: There was no good answer.
        """
        ...

    async def counts(self) -> Counts | None:
        """Return what it has counted so far, None if it does not tell."""
        ...

    async def close(self) -> None:
        """Give up connections; the process is the caller's to kill."""
        ...
