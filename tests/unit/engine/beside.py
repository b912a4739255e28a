"""A runner as a device that is asked for one step while another is under way."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from copydesk.inference.engine.native.compiled_types import CdRun
from copydesk.inference.engine.native.devices import CalledOverlappingDevice, Runner, put, runs_of
from copydesk.inference.engine.native.layout import Run, StepResult


class Beside(CalledOverlappingDevice):
    """Keeps for itself what it finds until a step is finished, and what the step before chose.

    It insists on what csrc/step.hpp promises it. `most` says how many steps were under way at once.
    """

    def __init__(self, runner: Runner, vocabulary: int) -> None:
        super().__init__()
        self._runner = runner
        self._vocabulary = vocabulary
        self._under_way: deque[tuple[Any, bytes, list[Run], StepResult]] = deque()
        self._chosen: list[int | None] = []
        self.most = 0
        self.unknown = 0  # tokens that were not known when their step was begun

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def begin(self, step: Any) -> None:
        assert len(self._under_way) < 2, "more steps than may be under way"
        named = runs_of(step)
        assert len({run.slot for run in named}) == len(named), "two requests share a slot"
        runs = [self._known(run) for run in named]
        result = self._runner.run(runs)
        self._chosen = [token for run in runs for token in _chosen(run, result)]
        self._under_way.append((step, _seen(step), runs, result))
        self.most = max(self.most, len(self._under_way))

    def finish(self) -> None:
        step, seen, runs, result = self._under_way.popleft()
        assert _seen(step) == seen, "a step was changed under way"
        put(step, runs, result, self._vocabulary)

    def _known(self, run: Run) -> Run:
        if min(run.tokens) >= 0:
            return run
        assert self._under_way, "a token is awaited from no step"
        assert (len(run.tokens), run.samples, run.scores) == (1, 1, False)
        token = self._chosen[-1 - run.tokens[0]]
        assert token is not None, "a token is awaited that the host chooses"
        self.unknown += 1
        return replace(run, tokens=[token])


def _chosen(run: Run, result: StepResult) -> Sequence[int | None]:
    if run.scores or not run.samples:
        return [None] * run.samples
    return result.tokens[run.slot]


def _seen(step: Any) -> bytes:
    """All that the step gives to read, and where it wants what is found."""
    places = [ctypes.cast(place, ctypes.c_void_p).value for place in (step.chosen, step.scores)]
    runs = ctypes.string_at(step.run, step.runs * ctypes.sizeof(CdRun))
    numbers = np.array([step.runs, step.tokens, step.samples, step.scored, step.released, *map(bool, places)])
    lists = [np.array(step.token[: step.tokens]), np.array(step.release[: step.released])]
    return b"".join([runs, numbers.tobytes(), *(values.tobytes() for values in lists), repr(places).encode()])
