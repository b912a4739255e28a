"""Rotary position embedding (Su et al., "RoFormer", arXiv 2104.09864) and the ways to stretch it."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


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


def inverse_frequencies(rope: Rope, head_dim: int) -> Floats:
    """Return the head_dim / 2 angular frequencies, in radians a position."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    plain: Floats = np.float32(1.0) / np.power(np.float32(rope.theta), exponents, dtype=np.float32)
    match rope.kind:
        case RopeKind.DEFAULT:
            return plain
        case RopeKind.LINEAR:
            return plain / np.float32(rope.factor)
        case RopeKind.LLAMA3:
            return _llama3(plain, rope)


def _llama3(plain: Floats, rope: Rope) -> Floats:
    """Divide long waves by `factor`, leave short ones, and blend between (Llama 3.1's `apply_scaling`)."""
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    turns = rope.original_positions * plain / np.float32(2 * math.pi)
    short = ((turns - low) / (high - low)).clip(0.0, 1.0)
    blended = (1 - short) * plain / np.float32(rope.factor) + short * plain
    return blended.astype(np.float32)


def cosines_and_sines(rope: Rope, head_dim: int, positions: int) -> tuple[Floats, Floats]:
    """Tabulate positions 0 to `positions` - 1: two arrays [positions, head_dim / 2]."""
    angles = np.outer(np.arange(positions, dtype=np.float32), inverse_frequencies(rope, head_dim))
    return np.cos(angles), np.sin(angles)
