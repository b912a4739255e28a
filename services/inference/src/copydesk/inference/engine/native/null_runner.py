"""The null device for the Python engine; csrc/null_device.cpp is its twin."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from copydesk.inference.engine.native.layout import Run, StepResult


class NullRunner:
    """Computes nothing in `seconds` a step, during which the processor is free, as it is beside an accelerator."""

    def __init__(self, seconds: float, vocabulary: int, sleep: Callable[[float], object] = time.sleep) -> None:
        self._seconds = seconds
        self._vocabulary = vocabulary
        self._sleep = sleep

    def run(self, runs: Sequence[Run]) -> StepResult:
        """After token t at position p comes t + p + 1."""
        if self._seconds:
            self._sleep(self._seconds)
        result = StepResult({})
        for run in runs:
            if not run.samples:
                continue
            first = len(run.tokens) - run.samples
            chosen = [
                (run.tokens[i] + run.start + i + 1) % self._vocabulary for i in range(first, len(run.tokens))
            ]
            if run.scores:
                result.scores[run.slot] = np.eye(self._vocabulary, dtype=np.float32)[chosen]
            else:
                result.tokens[run.slot] = chosen
        return result
