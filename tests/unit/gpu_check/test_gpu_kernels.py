"""How products in FP8 are judged on a GPU, shown on a processor, which has both kinds of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from copydesk.inference.engine.native.fp8.products import Product
from copydesk.inference.gpu_check import kernels
from copydesk.inference.gpu_check.kernels import product_bar
from copydesk.inference.gpu_check.rows import Row

GPU = torch.device("meta")  # any that is no processor; what is multiplied stays on one


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Row]]:
    whole = kernels._product

    def product(product: Product, count: int, columns: int, _: torch.device) -> list[Row]:
        return whole(product, count, columns, torch.device("cpu"))

    monkeypatch.setattr(kernels, "_product", product)
    monkeypatch.setattr(kernels, "_kernels", lambda device: {})
    return lambda: {row.setting: row for row in kernels.check_kernels(GPU, quick=True)}


def test_products_are_held_to_their_reference(products: Callable[[], dict[str, Row]]) -> None:
    found = products()
    assert set(found) == {f"{name} {size}" for name in ("rowwise", "tensorwise") for size in ("1x64", "5x96")}
    assert all(row.ok for row in found.values())


def test_a_shape_that_is_refused_row_wise_alone_is_told_and_is_no_failure(
    products: Callable[[], dict[str, Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {("rowwise", 96), ("tensorwise", 64)}
    whole = torch._scaled_mm

    def refusing(a: torch.Tensor, b: torch.Tensor, **how: Any) -> torch.Tensor:
        if ("tensorwise" if how["scale_a"].numel() == 1 else "rowwise", a.shape[1]) in refused:
            raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED")
        product: torch.Tensor = whole(a, b, **how)
        return product

    monkeypatch.setattr(torch, "_scaled_mm", refusing)
    found = products()
    assert found["rowwise 5x96"].ok is None
    assert "tensorwise is taken: RuntimeError: CUBLAS_STATUS_NOT_SUPPORTED" in found["rowwise 5x96"].note
    assert found["rowwise 1x64"].ok
    assert found["tensorwise 1x64"].ok is False, "there is nothing else to take"


def test_a_product_that_is_wrong_is_a_failure_however_it_is_scaled(
    products: Callable[[], dict[str, Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = torch._scaled_mm
    monkeypatch.setattr(torch, "_scaled_mm", lambda *args, **how: whole(*args, **how) * 1.05)
    assert [row.ok for row in products().values()] == [False] * 4


def test_long_sums_may_lose_more_on_hopper() -> None:
    assert product_bar(576) < 0.009
    assert 0.02 < product_bar(8192) < 0.025
