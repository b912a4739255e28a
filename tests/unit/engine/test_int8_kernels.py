"""The matrix products of the 8-bit decoder: exact, on every kind of processor."""

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native.int8.decoder import best_kernels
from copydesk.inference.engine.native.int8.packing import CdShape, block_size

DOWN = 11  # the part of csrc/int8_pack.cpp that has its own number of inputs
KERNELS = [name for name in ("amx", "avx512", "avx2", "portable") if best_kernels(load_library(), name)]
Floats = NDArray[np.float32]


def quantised(rows: Floats) -> tuple[NDArray[np.int64], Floats]:
    largest = np.abs(rows).max(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(largest > 0, np.float32(127.0) / largest, np.float32(0.0)).astype(np.float32)
    return np.rint(rows * steps).astype(np.int64), (largest / np.float32(127.0)).astype(np.float32)


def packed_weights(weights: Floats) -> tuple[NDArray[np.int64], Floats]:
    scale = (np.abs(weights).max(-1, keepdims=True) / np.float32(127.0)).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.where(scale > 0, weights / scale, np.float32(0.0))
    return np.rint(exact).clip(-127, 127).astype(np.int64), scale


def product(kernels: str, weights: Floats, rows: Floats) -> Floats:
    """`rows` [count, inputs] times `weights` [outputs, inputs] by the library."""
    library = load_library()
    outputs, inputs = weights.shape
    shape = CdShape(
        vocabulary=1,
        hidden=outputs,
        intermediate=inputs,
        layers=1,
        heads=1,
        kv_heads=1,
        head_dim=2,
        norm_epsilon=0.0,
    )
    memory = mmap.mmap(-1, block_size(library, shape))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    weights = np.ascontiguousarray(weights)
    put: Any = library.cd_pack_put
    put.restype = None
    data = ctypes.c_void_p(weights.ctypes.data)
    put(ctypes.byref(shape), ctypes.c_void_p(address), DOWN, 0, 0, data, 0, outputs, None, 0)
    out = np.zeros((len(rows), outputs), np.float32)
    failed = library.cd_kernels_multiply(
        kernels.encode(),
        ctypes.byref(shape),
        ctypes.c_void_p(address),
        ctypes.c_void_p(rows.ctypes.data),
        len(rows),
        ctypes.c_void_p(out.ctypes.data),
    )
    assert not failed
    return out


def integers(out: Floats, row_scale: Floats, weight_scale: Floats) -> NDArray[np.int64]:
    """The integer sums that a product was made of."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = out.astype(np.float64) / (row_scale.astype(np.float64) * weight_scale[:, 0].astype(np.float64))
    return np.rint(np.nan_to_num(exact)).astype(np.int64)


@pytest.mark.parametrize("kernels", KERNELS)
@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 70),
    inputs=st.integers(1, 300),
    outputs=st.integers(1, 90),
    seed=st.integers(0, 2**32 - 1),
)
def test_sums_are_exact_for_every_shape(kernels: str, count: int, inputs: int, outputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((outputs, inputs), np.float32)
    rows = rng.standard_normal((count, inputs), np.float32) * rng.choice([0.0, 1e-3, 1.0, 50.0], (count, 1))
    rows = rows.astype(np.float32)
    q, row_scale = quantised(rows)
    w, weight_scale = packed_weights(weights)
    out = product(kernels, weights, rows)
    wanted = np.where((row_scale > 0) & (weight_scale[:, 0] > 0), q @ w.T, 0)
    np.testing.assert_array_equal(integers(out, row_scale, weight_scale), wanted)


@pytest.mark.parametrize("kernels", KERNELS)
def test_the_largest_sums_do_not_overflow(kernels: str) -> None:
    inputs = 4096
    weights = np.ones((33, inputs), np.float32)
    rows = np.stack([np.full(inputs, 2.0, np.float32), np.full(inputs, -2.0, np.float32)])
    out = product(kernels, weights, rows)
    np.testing.assert_allclose(out, np.outer([2.0, -2.0], np.full(33, inputs)), rtol=1e-6)


def test_all_kinds_of_kernels_give_nearly_the_same() -> None:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((96, 200), np.float32)
    rows = rng.standard_normal((37, 200), np.float32)
    first, *others = [product(kernels, weights, rows) for kernels in KERNELS]
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-5, atol=1e-5)


def test_kernels_that_there_are_not_are_none() -> None:
    assert best_kernels(load_library(), "abacus") is None
    assert best_kernels(load_library()) == KERNELS[0]
