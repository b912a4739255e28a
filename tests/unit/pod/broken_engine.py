"""An engine process whose engine breaks as the command line says, at the first request.

`crash` and `hang` are an engine that is stepped; `lost` and `silent` the same of one over vLLM.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from copydesk.common.process import run
from copydesk.common.rpc import Load, Priority
from copydesk.common.telemetry import configure_logging
from copydesk.inference.engine import Engine, GenerateTokens, LoopEngine, OnDone, OnTokens
from copydesk.inference.engine.vllm.client import Part
from copydesk.inference.engine.vllm.engine import VllmEngine
from copydesk.inference.pod.engine_process import serve_engine
from copydesk.inference.settings import InferenceSettings
from tests.unit.vllm_engine.fake_vllm import FakeVllm


class BrokenEngine:
    """Takes one request, and never ends it."""

    context, capacity, queue = 64, 4, 4

    def __init__(self, how: str) -> None:
        self._how = how
        self._busy = False

    def submit(
        self,
        request: GenerateTokens,
        *,
        deadline: float,
        priority: Priority,
        on_done: OnDone,
        on_tokens: OnTokens | None = None,
    ) -> int:
        self._busy = True
        return 1

    def cancel(self, request_id: int) -> None:
        """Do nothing."""

    def step(self, now: float) -> bool:
        if self._busy and self._how == "crash":
            raise RuntimeError("a tensor of the wrong shape")
        while self._busy:
            time.sleep(60.0)
        return False

    def load(self) -> Load:
        return Load(capacity=self.capacity)

    def outlook(self, priority: Priority) -> float:
        return 0.0


class BrokenVllm(FakeVllm):
    """Never makes a token; with `lost` its process dies of the first request."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self._how = how

    async def generate(
        self, request_id: str, prompt: list[int], parameters: dict[str, Any], *, stream: bool
    ) -> AsyncIterator[Part]:
        if self._how == "lost" and request_id != "warm-up":
            self.dead = True
        async for part in super().generate(request_id, prompt, parameters, stream=stream):
            yield part


def broken(how: str) -> Engine | LoopEngine:
    """Return the engine that breaks so."""
    if how in {"crash", "hang"}:
        return BrokenEngine(how)
    return VllmEngine(BrokenVllm(how), context=64, slots=4, queue=4, drafts=False)


def main(how: str, socket: str) -> int:
    configure_logging("broken engine", json=True)
    engine = broken(how)
    settings = InferenceSettings(model_dir=Path("unused"), step_timeout_ms=200)
    return run(serve_engine(settings, socket, lambda _: (engine, "broken")))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
