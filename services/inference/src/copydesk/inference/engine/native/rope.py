"""Rotary position embedding (Su et al., "RoFormer", arXiv 2104.09864) and the ways to stretch it."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import torch


class RopeKind(enum.StrEnum):
    """How the frequencies are stretched beyond the length the model was first trained on."""

    DEFAULT = "default"
    LINEAR = "linear"
    LLAMA3 = "llama3"


@dataclass(frozen=True, slots=True)
class Rope:
    """A base frequency, and the parameters of its stretching; those after `factor` concern `LLAMA3` only."""

    theta: float = 10_000.0
    kind: RopeKind = RopeKind.DEFAULT
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_positions: int = 8192


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Cosines and sines, one row [head_dim] a position.

    The first half of each row of `sin` is negated, so that with half = head_dim / 2 a rotation is
    `x * cos + roll(x, half) * sin`, in the arrangement of Hugging Face checkpoints.
    """

    cos: torch.Tensor
    sin: torch.Tensor


def inverse_frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    """Return the head_dim / 2 angular frequencies, in radians a position, in float32."""
    plain = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    match rope.kind:
        case RopeKind.DEFAULT:
            return plain
        case RopeKind.LINEAR:
            return plain / rope.factor
        case RopeKind.LLAMA3:
            return _llama3(plain, rope)


def _llama3(plain: torch.Tensor, rope: Rope) -> torch.Tensor:
    """Divide long waves by `factor`, leave short ones, and blend between (Llama 3.1's `apply_scaling`)."""
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    turns = rope.original_positions * plain / (2 * math.pi)
    short = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - short) * plain / rope.factor + short * plain


def rope_table(rope: Rope, head_dim: int, positions: int, dtype: torch.dtype, device: torch.device) -> RopeTable:
    """Tabulate positions 0 to `positions` - 1, computed in float32 whatever `dtype` is."""
    frequencies = inverse_frequencies(rope, head_dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    cos, sin = angles.cos(), angles.sin()
    return RopeTable(
        cos=torch.cat([cos, cos], -1).to(device, dtype), sin=torch.cat([-sin, sin], -1).to(device, dtype)
    )
