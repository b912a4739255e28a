"""FP8's kernels, torch's and Triton's in its interpreter, and its products, against `fp8.reference`."""

import importlib
import sys
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from copydesk.inference.engine.native.fp8 import choice, reference
from copydesk.inference.engine.native.fp8.choice import (
    EMULATION,
    Fp8Arithmetic,
    choose_arithmetic,
    kernels_error,
    product_error,
)
from copydesk.inference.engine.native.fp8.kernels import ROW_STEP, RowKernels, Rows, TorchKernels
from copydesk.inference.engine.native.fp8.linear import Fp8Gated, Fp8Linear, Fp8Normed
from copydesk.inference.engine.native.fp8.products import PRODUCTS, Product
from copydesk.inference.quantisation.arithmetic import quantise_tokens
from copydesk.inference.quantisation.scheme import Scheme

CPU = torch.device("cpu")
TRITON = "copydesk.inference.engine.native.fp8.triton_kernels"
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MAGNITUDES = (0.0, 1e-42, 1e-8, 1e-3, 1.0, 300.0, 1e6)


@pytest.fixture(autouse=True)
def _few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of hardware are slow on a processor."""
    monkeypatch.setattr(choice, "_MOST_ROWS", ROW_STEP)


@pytest.fixture(scope="module")
def interpreted() -> ModuleType:
    """The module of Triton's kernels: in tests they are interpreted (tests/conftest.py)."""
    pytest.importorskip("triton")
    return importlib.import_module(TRITON)


@pytest.fixture(params=["torch", "torch padded", "triton"])
def kernels(request: pytest.FixtureRequest) -> RowKernels:
    if request.param == "triton":
        found: RowKernels = request.getfixturevalue("interpreted").TritonKernels()
        return found
    return TorchKernels(ROW_STEP if request.param == "torch padded" else 1)


def random_rows(seed: int, count: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows of very different sizes, zeros among them."""
    random = torch.Generator().manual_seed(seed)
    sizes = torch.tensor(MAGNITUDES)[torch.randint(len(MAGNITUDES), (count, 1), generator=random)]
    return (torch.randn(count, columns, generator=random) * sizes).to(dtype)


def check_shape(rows: Rows, count: int, columns: int) -> None:
    padded = rows.values.shape[0]
    assert (rows.count, rows.values.shape[1]) == (count, columns)
    assert rows.values.dtype == torch.float8_e4m3fn
    assert (rows.scale.shape, rows.scale.dtype) == ((padded, 1), torch.float32)
    assert count <= padded < count + ROW_STEP
    assert not rows.values[count:].float().any()
    assert not rows.scale[count:].any()


@QUICK
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 17),
    columns=st.integers(1, 150),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
)
def test_rows_are_rounded_bit_for_bit_as_the_reference_rounds_them(
    kernels: RowKernels, seed: int, count: int, columns: int, dtype: torch.dtype
) -> None:
    x = random_rows(seed, count, columns, dtype)
    rows = kernels.quantise(x)
    check_shape(rows, count, columns)
    values, scale = reference.quantise(x)
    assert torch.equal(rows.values[:count].float(), values)
    assert torch.equal(rows.scale[:count], scale)
    in_numpy, scale_in_numpy = quantise_tokens(x.float().numpy(), Scheme.FP8)
    np.testing.assert_array_equal(values.numpy(), in_numpy.astype(np.float32))
    np.testing.assert_array_equal(scale.numpy(), scale_in_numpy)


def test_every_number_of_the_grid_and_every_middle_between_two_is_rounded_to_even(kernels: RowKernels) -> None:
    grid = np.arange(0x7F, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    middles = (grid[1:] + grid[:-1]) / 2
    row = np.sort(np.concatenate([grid, middles, -grid, -middles, np.nextafter(middles, np.float32(0))]))
    rows = kernels.quantise(torch.from_numpy(row)[None])
    assert rows.scale[0].item() == 1
    np.testing.assert_array_equal(rows.values[0].float().numpy(), row.astype(ml_dtypes.float8_e4m3fn))


def assert_nearly(rows: Rows, exact: torch.Tensor) -> None:
    """As near to exact numbers as E4M3 comes: half a step, and a little more by the errors of float32."""
    found = rows.values[: rows.count].float() * rows.scale[: rows.count]
    nearest = torch.maximum(exact.abs() / 16, rows.scale[: rows.count] * 2**-10)
    assert ((found - exact).abs() <= nearest * 1.001).all()
    torch.testing.assert_close(
        rows.scale[: rows.count], exact.abs().amax(-1, keepdim=True) / 448, rtol=1e-5, atol=1e-38
    )


@QUICK
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 17),
    columns=st.integers(1, 150),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
)
def test_norms_and_gates_are_computed_in_float32_and_rounded_once(
    kernels: RowKernels, seed: int, count: int, columns: int, dtype: torch.dtype
) -> None:
    x = random_rows(seed, count, 2 * columns, dtype)
    weight = torch.randn(2 * columns, generator=torch.Generator().manual_seed(seed + 1)).to(dtype)
    normed = kernels.norm_quantise(x, weight, 1e-5)
    check_shape(normed, count, 2 * columns)
    assert_nearly(normed, reference.norm(x, weight, 1e-5))
    gated = kernels.gate_quantise(x)
    check_shape(gated, count, columns)
    assert_nearly(gated, reference.gate(x))


def test_rows_that_lie_apart_are_taken_as_they_lie(kernels: RowKernels) -> None:
    wide = random_rows(3, 5, 96, torch.bfloat16)
    part = wide[:, 32:64]
    assert torch.equal(kernels.quantise(part).values.float(), kernels.quantise(part.contiguous()).values.float())


def test_a_row_is_rounded_the_same_in_any_company(kernels: RowKernels) -> None:
    x = random_rows(4, 40, 70, torch.bfloat16)
    together = kernels.norm_quantise(x, torch.ones(70), 1e-5)
    for row in (0, 17, 39):
        alone = kernels.norm_quantise(x[row : row + 1], torch.ones(70), 1e-5)
        assert torch.equal(alone.values[0].float(), together.values[row].float())


def rounded_case(seed: int, count: int, inputs: int, outputs: int) -> tuple[Rows, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    rows = TorchKernels(ROW_STEP).quantise(torch.randn(count, inputs, generator=random) * 7)
    weight = torch.randn(outputs, inputs, generator=random).mul(100).to(torch.float8_e4m3fn)
    return rows, weight, torch.rand(outputs, generator=random) / 100 + 1e-4


@pytest.mark.parametrize("product", Product)
@pytest.mark.parametrize("single", [False, True])
@QUICK
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 40),
    inputs=st.integers(1, 9),
    outputs=st.integers(1, 9),
    biased=st.booleans(),
)
def test_products_are_those_of_the_reference(
    product: Product, single: bool, seed: int, count: int, inputs: int, outputs: int, biased: bool
) -> None:
    """Float32 sums in another order, and for the hardware's an answer in bfloat16."""
    rows, weight, scale = rounded_case(seed, count, 16 * inputs, 16 * outputs)
    scale = scale[:1] if single else scale
    bias = torch.linspace(-3, 3, 16 * outputs) if biased else None
    found = Fp8Arithmetic(TorchKernels(ROW_STEP), product).multiply(weight, scale, bias)(rows)
    assert found.shape == (count, 16 * outputs)
    exact = reference.multiply(
        rows.values[:count].float(), rows.scale[:count], weight.float(), scale.expand(16 * outputs), bias
    )
    step = 1e-5 if product is Product.EMULATED else 2**-7
    magnitudes = reference.multiply(
        rows.values[:count].float().abs(), rows.scale[:count], weight.float().abs(), scale.expand(16 * outputs)
    )
    assert (
        (found.float() - exact).abs() <= step * (exact.abs() + (0 if bias is None else 3)) + 1e-6 * magnitudes
    ).all()


def test_a_map_is_what_comes_before_it_then_the_product() -> None:
    torch.manual_seed(0)
    x, norm = torch.randn(3, 64), torch.rand(64)
    weight, scale = torch.randn(32, 64).to(torch.float8_e4m3fn), torch.rand(32, 1)
    linear = Fp8Linear(EMULATION, weight, scale)

    def expected(exact: torch.Tensor) -> torch.Tensor:
        return reference.multiply(*reference.quantise(exact), weight.float(), scale.flatten())

    torch.testing.assert_close(linear(x), expected(x), rtol=1e-5, atol=1e-4)
    normed = expected(reference.norm(x, norm, 1e-6))
    torch.testing.assert_close(Fp8Normed(norm, 1e-6, linear)(x), normed, rtol=1e-5, atol=1e-3)
    wide = torch.randn(3, 128)
    torch.testing.assert_close(Fp8Gated(linear)(wide), expected(reference.gate(wide)), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("product", Product)
def test_nothing_depends_on_numbers_that_the_host_would_have_to_wait_for(product: Product) -> None:
    """Tensors without numbers: what looked at one, as a capture of a graph forbids, would fail."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        arithmetic = Fp8Arithmetic(TorchKernels(ROW_STEP), product)
        weight, scale = torch.empty(32, 64, dtype=torch.float8_e4m3fn), torch.empty(32, 1)
        linear = Fp8Linear(arithmetic, weight, scale)
        x = torch.empty(5, 64, dtype=torch.bfloat16)
        assert Fp8Normed(torch.empty(64), 1e-6, linear)(x).shape == (5, 32)
        assert Fp8Gated(linear)(torch.empty(5, 128, dtype=torch.bfloat16)).shape == (5, 32)


def test_a_processor_emulates() -> None:
    assert choose_arithmetic(CPU) is EMULATION


def test_kernels_and_products_pass_the_trial_that_chooses_them(kernels: RowKernels) -> None:
    assert kernels_error(kernels, CPU) < 1e-6
    for product in Product:
        assert product_error(product, CPU) < 0.005


class Halved(TorchKernels):
    """Kernels that compute something else."""

    def quantise(self, x: torch.Tensor) -> Rows:
        return super().quantise(x / 2)


def test_kernels_that_compute_something_else_fail_the_trial() -> None:
    assert kernels_error(Halved(), CPU) > 0.1


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ((), Product.ROWWISE),
        ((Product.ROWWISE,), Product.TENSORWISE),
        ((Product.ROWWISE, Product.TENSORWISE), None),
    ],
)
def test_the_best_that_runs_is_chosen_for_an_accelerator(
    failing: tuple[Product, ...], expected: Product | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def error(product: Product, device: torch.device) -> float:
        if product in failing[:1]:
            raise RuntimeError("this GPU does not have that\nand a long trace")
        return 1.0 if product in failing else 0.0

    monkeypatch.setattr(choice, "product_error", error)
    monkeypatch.setitem(sys.modules, TRITON, None)  # as where there is no Triton
    found = choose_arithmetic(torch.device("meta"))
    assert (None if found is None else found.product) == expected
    assert found is None or isinstance(found.kernels, TorchKernels)


def test_triton_is_taken_where_it_computes_what_it_should(
    interpreted: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "product_error", lambda product, device: 0.0)
    errors = iter([0.0, 0.3])
    monkeypatch.setattr(choice, "kernels_error", lambda kernels, device: next(errors))
    first, second = (choose_arithmetic(torch.device("meta")) for _ in range(2))
    assert first is not None
    assert second is not None
    assert isinstance(first.kernels, interpreted.TritonKernels)
    assert isinstance(second.kernels, TorchKernels)


def test_hardware_multiplies_by_sixteens_alone() -> None:
    for product in PRODUCTS:
        arithmetic = Fp8Arithmetic(TorchKernels(), product)
        assert arithmetic.takes(32, 64)
        assert arithmetic.takes(33, 64) == arithmetic.takes(32, 65) == (product is Product.EMULATED)


def test_a_shape_that_is_refused_row_wise_is_multiplied_with_one_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """As cuBLAS refuses few rows of many columns."""
    whole = torch._scaled_mm

    def refusing(a: torch.Tensor, b: torch.Tensor, **how: Any) -> torch.Tensor:
        if how["scale_a"].numel() > 1 and a.shape[0] < 64 and a.shape[1] > 64:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED\nand a long trace")
        product: torch.Tensor = whole(a, b, **how)
        return product

    monkeypatch.setattr(torch, "_scaled_mm", refusing)
    arithmetic = Fp8Arithmetic(TorchKernels(ROW_STEP), Product.ROWWISE)
    with capture_logs() as events:
        for inputs in (64, 96, 96):
            rows, weight, scale = rounded_case(inputs, 5, inputs, 32)
            found = arithmetic.multiply(weight, scale, None)
            exact = reference.multiply(rows.values[:5].float(), rows.scale[:5], weight.float(), scale)
            torch.testing.assert_close(found(rows).float(), exact, rtol=2**-7, atol=1e-3)
            assert isinstance(found, PRODUCTS[Product.ROWWISE if inputs == 64 else Product.TENSORWISE])
    assert [(event["event"], event["outputs"], event["inputs"], event["reason"]) for event in events] == [
        ("fp8_shape_refused", 32, 96, "16 rows: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED")
    ]


def test_triton_launches_on_the_device_that_the_rows_are_on(
    interpreted: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself it would launch on the current one, whichever that is."""
    entered: list[torch.Tensor] = []

    def device_of(x: torch.Tensor) -> AbstractContextManager[None]:
        entered.append(x)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    x, kernels = torch.randn(3, 64), interpreted.TritonKernels()
    kernels.quantise(x)
    kernels.norm_quantise(x, torch.ones(64), 1e-5)
    kernels.gate_quantise(x)
    assert [each is x for each in entered] == [True] * 3
