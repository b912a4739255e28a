"""Rows rounded to FP8, behind a norm or an activation or by themselves: the seam, and torch's side of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

LIMIT = 448.0
ROW_STEP = 16
"""The matrix products of GPUs take rows by sixteens."""
SCALE_STEP = 256
"""Row-wise products read the scales of a whole tile, also where there are fewer (pytorch#133334)."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows [padded, K] in float8_e4m3fn with float32 scales [padded, 1], of which `count` are meant."""

    values: torch.Tensor
    scale: torch.Tensor
    count: int


class RowKernels(Protocol):
    """Rounds rows [count, ...] of floating point numbers; everything is float32 until it is rounded."""

    def quantise(self, x: torch.Tensor) -> Rows:
        """Round [count, K]."""
        ...

    def norm_quantise(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> Rows:
        """Round the RMS norm of [count, K]."""
        ...

    def gate_quantise(self, gate_up: torch.Tensor) -> Rows:
        """Round `silu(gate) * up` of [count, 2 K]."""
        ...


class TorchKernels:
    """By torch's operations, about ten for each: for processors, and for GPUs without Triton.

    Rows are padded to a multiple of `row_step`.
    """

    def __init__(self, row_step: int = 1) -> None:
        self._row_step = row_step

    def quantise(self, x: torch.Tensor) -> Rows:
        """Round [count, K]."""
        x = x.float()
        found = x.abs().amax(-1, keepdim=True).div_(LIMIT)
        rows = empty_rows(x.shape[0], x.shape[1], self._row_step, x.device)
        rows.scale[: rows.count] = found
        rows.values[: rows.count] = (x / found.masked_fill(found == 0, 1.0)).clamp_(-LIMIT, LIMIT)
        if rows.count < rows.values.shape[0]:
            rows.scale[rows.count :] = 0.0
            rows.values.view(torch.uint8)[rows.count :] = 0
        return rows

    def norm_quantise(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> Rows:
        """Round the RMS norm of [count, K]."""
        return self.quantise(F.rms_norm(x.float(), (x.shape[-1],), weight.float(), epsilon))

    def gate_quantise(self, gate_up: torch.Tensor) -> Rows:
        """Round `silu(gate) * up` of [count, 2 K]."""
        gate, up = gate_up.float().chunk(2, -1)
        return self.quantise(F.silu(gate).mul_(up))


def empty_rows(count: int, columns: int, row_step: int, device: torch.device) -> Rows:
    """Return room for `count` rows and their padding."""
    padded = _up(count, row_step)
    values = torch.empty(padded, columns, dtype=torch.float8_e4m3fn, device=device)
    room = _up(padded, SCALE_STEP) if row_step > 1 else padded
    scale = torch.empty(room, 1, dtype=torch.float32, device=device)
    return Rows(values, scale[:padded], count)


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
