"""Weights in 8 bits: how far they may be from the original, and that scales are what is stored of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from copydesk.inference.quantisation.arithmetic import (
    LIMIT,
    STORED,
    dequantise_weight,
    quantise_tokens,
    quantise_weight,
)
from copydesk.inference.quantisation.scheme import Scheme, WeightScale

FLOATS = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)
WEIGHTS = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12), elements=FLOATS)
SCHEMES, SCALES = st.sampled_from(Scheme), st.sampled_from(WeightScale)

_SCALE_ROUNDING = 2.0**-8
"""A bfloat16 scale may lie so far below the exact one, relatively; the largest weights are then cut."""

_SMALLEST_SCALE = 2.0**-133
"""Below the smallest normal bfloat16, scales lie this far apart."""


def step(scheme: Scheme, scaled: NDArray[Any]) -> NDArray[Any]:
    """Half the distance between stored numbers around each: constant for integers, relative for FP8."""
    if scheme is Scheme.INT8:
        return np.full_like(scaled, 0.5)
    return np.asarray(np.maximum(np.abs(scaled) * 2.0**-4, 2.0**-10))


@given(WEIGHTS, SCHEMES, SCALES)
def test_no_weight_is_further_off_than_half_a_step(
    weight: NDArray[np.float32], scheme: Scheme, weight_scale: WeightScale
) -> None:
    stored, scale = quantise_weight(weight, scheme, weight_scale)
    found = dequantise_weight(stored, scale).astype(np.float64)
    exact_scale = np.maximum(scale.astype(np.float64), 1e-300)
    allowed = step(scheme, weight / exact_scale) * exact_scale + np.abs(weight) * _SCALE_ROUNDING
    assert (np.abs(found - weight) <= allowed * 1.0001 + 1e-37).all()


@given(WEIGHTS, SCHEMES, SCALES)
def test_scales_are_bfloat16_and_fit_the_largest_weight(
    weight: NDArray[np.float32], scheme: Scheme, weight_scale: WeightScale
) -> None:
    stored, scale = quantise_weight(weight, scheme, weight_scale)
    per_channel = weight_scale is WeightScale.CHANNEL
    assert scale.dtype == np.dtype(ml_dtypes.bfloat16)
    assert scale.shape == ((len(weight), 1) if per_channel else (1,))
    assert stored.dtype == STORED[scheme]
    assert stored.shape == weight.shape
    largest = np.abs(weight).max(axis=1, keepdims=True) if per_channel else np.abs(weight).max(keepdims=True)
    exact = largest.reshape(scale.shape) / LIMIT[scheme]
    np.testing.assert_allclose(scale.astype(np.float64), exact, rtol=2**-8, atol=_SMALLEST_SCALE / 2)
    assert (np.abs(stored.astype(np.float32)) <= LIMIT[scheme]).all()


@given(WEIGHTS, SCHEMES, SCALES)
def test_what_is_divided_by_is_the_stored_scale(
    weight: NDArray[np.float32], scheme: Scheme, weight_scale: WeightScale
) -> None:
    """Quantising again what was read back changes nothing, since the scale was rounded first."""
    stored, scale = quantise_weight(weight, scheme, weight_scale)
    divisor = np.where(scale == 0, 1, scale).astype(np.float32)
    ratio = np.clip(weight / divisor, -LIMIT[scheme], LIMIT[scheme])
    expected = torch.from_numpy(ratio)
    exact = expected.round() if scheme is Scheme.INT8 else expected.to(torch.float8_e4m3fn).float()
    assert np.array_equal(stored.astype(np.float32), exact.numpy())


@given(WEIGHTS, SCHEMES, SCALES)
def test_the_same_weight_gives_the_same_bytes_and_its_negative_the_negative(
    weight: NDArray[np.float32], scheme: Scheme, weight_scale: WeightScale
) -> None:
    stored, scale = quantise_weight(weight, scheme, weight_scale)
    again, scale_again = quantise_weight(weight.copy(order="F"), scheme, weight_scale)
    assert stored.tobytes() == again.tobytes()
    assert scale.tobytes() == scale_again.tobytes()
    negative, _ = quantise_weight(-weight, scheme, weight_scale)
    assert np.array_equal(negative.astype(np.float32), -stored.astype(np.float32))


@pytest.mark.parametrize("scheme", Scheme)
def test_a_channel_of_zeros_stays_zero(scheme: Scheme) -> None:
    weight = np.zeros((3, 4), np.float32)
    weight[1] = 5
    stored, scale = quantise_weight(weight, scheme, WeightScale.CHANNEL)
    assert np.array_equal(dequantise_weight(stored, scale) != 0, weight != 0)
    assert scale[0] == 0


def test_every_fp8_number_is_read_back_as_torch_reads_it() -> None:
    bits = np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint8)
    stored = bits.view(STORED[Scheme.FP8]).reshape(2, -1)
    expected = torch.from_numpy(bits).view(torch.float8_e4m3fn).float().numpy().reshape(2, -1)
    assert np.array_equal(dequantise_weight(stored, np.ones(1, ml_dtypes.bfloat16)), expected)


@given(WEIGHTS, SCHEMES)
def test_tokens_have_a_scale_each(activations: NDArray[np.float32], scheme: Scheme) -> None:
    rounded, scale = quantise_tokens(activations, scheme)
    assert scale.shape == (len(activations), 1)
    found = rounded.astype(np.float64) * scale
    positive = np.maximum(scale.astype(np.float64), 1e-300)
    assert (np.abs(found - activations) <= step(scheme, activations / positive) * positive * 1.0001 + 1e-37).all()
