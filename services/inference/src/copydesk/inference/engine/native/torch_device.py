"""Torch as a device: what the decoder needs of a step comes from one call into the compiled library."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

from copydesk.inference.engine.native.devices import CalledDevice
from copydesk.inference.engine.native.flat_layout import LayoutRoom
from copydesk.inference.engine.native.runner import TorchRunner, likeliest


class TorchDevice(CalledDevice):
    """Computes steps with a runner's decoder; per token, nothing is done in Python.

    All steps are laid out in the same room. On a processor tensors are views of it, and nothing reads them any
    more when a step returns. On an accelerator they are views of one copy, made anew each step; the host waits
    until the copy is there, so that the room may change even if it does not wait for the step itself, as after
    one that samples nothing.
    """

    def __init__(self, library: ctypes.CDLL, runner: TorchRunner) -> None:
        super().__init__()
        self._runner = runner
        self._room = LayoutRoom(library, runner.context)

    def compute(self, step: Any) -> None:
        """Run the decoder, and write what it finds where the step says, in the order of the step's runs."""
        layout = self._room.lay_out(step)
        with torch.inference_mode():
            numbers = torch.from_numpy(layout.numbers).to(self._runner.device)
            logits = self._runner.flat_logits(layout, numbers)
            if step.samples > step.scored:
                chosen = likeliest(logits).index_select(0, numbers[layout.places])
                _array(step.chosen, (step.samples,)).copy_(chosen)
            if step.scored:
                scores = logits.index_select(0, numbers[layout.scored])
                _array(step.scores, tuple(scores.shape)).copy_(scores)


def _array(pointer: Any, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.from_numpy(np.ctypeslib.as_array(pointer, shape))
