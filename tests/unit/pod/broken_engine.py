"""An engine process whose engine breaks as the command line says: `crash` or `hang`, at the first request."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from copydesk.common.process import run
from copydesk.common.rpc import Load, Priority
from copydesk.common.telemetry import configure_logging
from copydesk.inference.engine import Engine, GenerateTokens, OnDone, OnTokens
from copydesk.inference.pod.engine_process import serve_engine
from copydesk.inference.settings import InferenceSettings


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


def main(how: str, socket: str) -> int:
    configure_logging("broken engine", json=True)
    engine: Engine = BrokenEngine(how)
    settings = InferenceSettings(model_dir=Path("unused"), step_timeout_ms=200)
    return run(serve_engine(settings, socket, lambda _: (engine, "broken")))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
