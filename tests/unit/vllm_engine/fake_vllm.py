"""A stand-in for vLLM at the seam: it makes tokens when a test says so, and knows who asked for what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import GeneratedTokens, GenerateTokens
from copydesk.inference.engine.vllm.client import Acceptance, CoreLostError, Ended, Part
from copydesk.inference.engine.vllm.engine import VllmEngine

VOCABULARY = 50


@dataclass
class Asked:
    """A request that vLLM has."""

    prompt: list[int]
    parameters: dict[str, Any]
    stream: bool
    parts: asyncio.Queue[Part | Exception] = field(default_factory=asyncio.Queue)
    held: list[int] = field(default_factory=list)


class FakeVllm:
    """A `Client`; requests are known by the names that the engine gave them."""

    vocabulary = VOCABULARY

    def __init__(self) -> None:
        self.dead = False
        self.asked: dict[str, Asked] = {}
        self.everyone: list[str] = []
        self.aborted: list[str] = []
        self.closed: float | None = None
        self.heard: Callable[[], None] = lambda: None

    def on_step(self, heard: Callable[[], None]) -> None:
        self.heard = heard

    async def generate(
        self, request_id: str, prompt: list[int], parameters: dict[str, Any], *, stream: bool
    ) -> AsyncIterator[Part]:
        if request_id == "warm-up":
            yield Part([1, 2], Ended.LENGTH)
            return
        asked = self.asked[request_id] = Asked(prompt, parameters, stream)
        self.everyone.append(request_id)
        try:
            while True:
                part = await asked.parts.get()
                if isinstance(part, Exception):
                    raise part
                yield part
                if part.ended:
                    return
        finally:
            del self.asked[request_id]

    async def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)
        if request_id in self.asked:
            self.make(request_id, ended=Ended.ABORT)

    def close(self, timeout: float) -> None:
        self.closed = timeout

    def make(
        self,
        name: str,
        *tokens: int,
        ended: Ended | None = None,
        stop_id: int | None = None,
        acceptance: Acceptance | None = None,
    ) -> None:
        """Make tokens for a request, which one that does not stream gets together with the end."""
        asked = self.asked[name]
        asked.held += tokens
        if ended is not Ended.ABORT:  # which takes no step
            self.heard()
        if asked.stream or ended:
            asked.parts.put_nowait(Part(asked.held, ended, stop_id, acceptance or Acceptance()))
            asked.held = []

    def fail(self, name: str, error: Exception) -> None:
        self.asked[name].parts.put_nowait(error)

    def die(self) -> None:
        self.dead = True
        for name in self.asked:
            self.fail(name, CoreLostError())


class Client:
    """Asks an engine, and keeps what comes back, by names of the test's choosing."""

    def __init__(self, engine: VllmEngine) -> None:
        self.engine = engine
        self.answers: dict[str, GeneratedTokens] = {}
        self.streamed: dict[str, list[list[int]]] = {}

    def ask(
        self,
        name: str,
        request: GenerateTokens,
        priority: Priority = Priority.INTERACTIVE,
        deadline: float = float("inf"),
    ) -> int:
        self.streamed[name] = []

        def done(answer: GeneratedTokens) -> None:
            assert name not in self.answers
            self.answers[name] = answer

        return self.engine.submit(
            request, deadline=deadline, priority=priority, on_done=done, on_tokens=self.streamed[name].append
        )


async def settle() -> None:
    """Let everything happen that can."""
    for _ in range(20):
        await asyncio.sleep(0)
