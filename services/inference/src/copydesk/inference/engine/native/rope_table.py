"""The rotary embedding's table as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from copydesk.inference.engine.native.rope import Rope, cosines_and_sines


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Cosines and sines, one row [head_dim] a position.

    The first half of each row of `sin` is negated, so that with half = head_dim / 2 a rotation is
    `x * cos + roll(x, half) * sin`, in the arrangement of Hugging Face checkpoints.
    """

    cos: torch.Tensor
    sin: torch.Tensor


def rope_table(rope: Rope, head_dim: int, positions: int, dtype: torch.dtype, device: torch.device) -> RopeTable:
    """Tabulate positions 0 to `positions` - 1, computed in float32 whatever `dtype` is."""
    cos, sin = (torch.from_numpy(table) for table in cosines_and_sines(rope, head_dim, positions))
    return RopeTable(
        cos=torch.cat([cos, cos], -1).to(device, dtype), sin=torch.cat([-sin, sin], -1).to(device, dtype)
    )
