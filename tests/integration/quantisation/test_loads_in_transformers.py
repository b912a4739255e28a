"""Checkpoints in 8 bits as transformers reads them, with the library that defines the format."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from copydesk.inference.quantisation.conversion import quantise_directory
from copydesk.inference.quantisation.plan import PrecisionPlan
from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale
from tests.fixtures.quantised_model import multiplied_out
from tests.fixtures.tiny_model import write_tiny_model

TOKENS = torch.tensor([[1, 40, 41, 50, 60, 70, 80, 90, 100, 110]])
PLANS = [
    PrecisionPlan(Scheme.FP8),
    PrecisionPlan(Scheme.FP8, per_tensor=True, keep=("attention",)),
    PrecisionPlan(Scheme.INT8, keep=("*.0.mlp.down_proj",)),
    PrecisionPlan(Scheme.INT8, per_tensor=True),
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load(directory: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the libraries warn each other of is not ours
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return model.eval()


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    """What the parameters stand for; transformers multiplies them out only when they are first used."""
    stored = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return {
        name: parameter.float() * stored[f"{name}_scale"].float() if parameter.itemsize == 1 else parameter.float()
        for name, parameter in stored.items()
        if not name.endswith("_scale")
    }


@pytest.mark.parametrize("plan", PLANS)
def test_transformers_reads_the_weights_that_were_meant(tmp_path: Path, plan: PrecisionPlan) -> None:
    source = write_tiny_model(tmp_path / "original", dtype="bfloat16")
    report = quantise_directory(source, tmp_path / "out", plan, measure=False)
    ignore = ("lm_head", *(module.name for module in report.modules if module.kept is not None))
    scale = WeightScale.TENSOR if plan.per_tensor else WeightScale.CHANNEL
    meant = load(multiplied_out(source, tmp_path / "meant", Quantisation(plan.scheme, scale, ignore)))
    model = load(tmp_path / "out")
    found, expected = weights_of(model), weights_of(meant)
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-6, atol=0)
    with torch.no_grad():
        scores, exact = model(TOKENS).logits, meant(TOKENS).logits
    # transformers rounds activations as well, as the configuration says.
    assert (scores - exact).norm() < 0.15 * exact.norm()
