"""Steps as a device is given them, with the arrays that they point to."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copydesk.inference.engine.native.compiled_types import CdRun, CdStep
from copydesk.inference.engine.native.layout import Run


@dataclass(frozen=True)
class Described:
    """A step, valid for as long as this is; `tokens` and `runs` are what it reads, the others what is written."""

    step: CdStep
    runs: ctypes.Array[CdRun]
    tokens: NDArray[np.int32]
    chosen: NDArray[np.int32]
    scores: NDArray[np.float32]


def described(runs: Sequence[Run], vocabulary: int) -> Described:
    """Runs as a step, with -1 for what has not been found yet."""
    table = (CdRun * len(runs))(*(CdRun(r.slot, r.start, len(r.tokens), r.samples, r.scores) for r in runs))
    tokens = np.array([token for run in runs for token in run.tokens], np.int32)
    chosen = np.full(sum(run.samples for run in runs), -1, np.int32)
    scores = np.full((sum(run.samples for run in runs if run.scores), vocabulary), -1, np.float32)
    integers, floats = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_float)
    step = CdStep(
        runs=len(runs),
        tokens=len(tokens),
        samples=len(chosen),
        scored=len(scores),
        run=table,
        token=tokens.ctypes.data_as(integers),
        chosen=chosen.ctypes.data_as(integers),
        scores=scores.ctypes.data_as(floats) if len(scores) else None,
    )
    return Described(step, table, tokens, chosen, scores)
