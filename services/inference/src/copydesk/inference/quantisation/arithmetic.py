"""Weights in 8 bits and back, in numpy: what the quantiser stores, and what every kernel is held to.

A scale is rounded to bfloat16, in which it is stored, before the weight is divided by it; else what is read back
would be off by the rounding of the scale as well, up to 0.4 %. FP8 is E4M3 without infinities (Micikevicius et
al., "FP8 Formats for Deep Learning", 2022), rounded to the nearest even number.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from copydesk.inference.quantisation.scheme import Scheme, WeightScale

LIMIT = {Scheme.FP8: 448.0, Scheme.INT8: 127.0}
"""The largest stored number; -128 is left out, so that a weight and its negative are stored alike."""

STORED: dict[Scheme, np.dtype[Any]] = {
    Scheme.FP8: np.dtype(ml_dtypes.float8_e4m3fn),
    Scheme.INT8: np.dtype(np.int8),
}

BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)

_FP8_VALUES = np.arange(256, dtype=np.uint8).view(STORED[Scheme.FP8]).astype(np.float32)
"""Every number there is, by its bits: looking them up is several times as fast as converting."""


def quantise_weight(
    weight: NDArray[np.float32], scheme: Scheme, weight_scale: WeightScale
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a finite weight [N, K] in 8 bits, and its scales in bfloat16, [N, 1] or [1].

    A channel of zeros has the scale 0. A weight that lies beyond the largest stored number, because its scale was
    rounded down, becomes that number.
    """
    scale = _scale(weight, scheme, weight_scale)
    return _round(weight, scale.astype(np.float32), scheme), scale


def dequantise_weight(stored: NDArray[Any], scale: NDArray[Any]) -> NDArray[np.float32]:
    """Return the float32 weight that `stored` [N, K] stands for."""
    is_fp8 = stored.dtype == STORED[Scheme.FP8]
    numbers = _FP8_VALUES[stored.view(np.uint8)] if is_fp8 else stored.astype(np.float32)
    return np.asarray(numbers * scale.astype(np.float32), np.float32)


def quantise_tokens(activations: NDArray[np.float32], scheme: Scheme) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return activations [M, K] in 8 bits and their float32 scales [M, 1], as kernels round them at run time."""
    scale = np.abs(activations).max(axis=-1, keepdims=True) / np.float32(LIMIT[scheme])
    return _round(activations, scale, scheme), scale


def _scale(weight: NDArray[np.float32], scheme: Scheme, weight_scale: WeightScale) -> NDArray[Any]:
    per_channel = weight_scale is WeightScale.CHANNEL
    largest = np.abs(weight).max(axis=1, keepdims=True) if per_channel else np.abs(weight).max().reshape(1)
    return np.asarray((largest / np.float32(LIMIT[scheme])).astype(BFLOAT16))


def _round(numbers: NDArray[np.float32], scale: NDArray[np.float32], scheme: Scheme) -> NDArray[Any]:
    limit = np.float32(LIMIT[scheme])
    divisor = np.where(scale == 0, 1, scale).astype(np.float32)
    scaled = np.clip(numbers / divisor, -limit, limit)
    return np.asarray(np.rint(scaled) if scheme is Scheme.INT8 else scaled, STORED[scheme])
