"""Which plans are tried where."""

from __future__ import annotations

import pytest

from copydesk.cli.onboarding.precision import (
    EMULATED,
    NOT_HERE,
    UnknownPlanError,
    exact_arithmetic,
    named,
    plans_for,
)


def test_a_processor_tries_what_it_computes_fast_and_says_what_it_leaves_out() -> None:
    choice = plans_for(device="cpu", exact="bfloat16")
    assert [(plan.name, plan.dtype) for plan in choice.plans] == [
        ("original", "bfloat16"),
        ("original-int8", "int8"),
        ("int8", "int8"),
    ]
    assert NOT_HERE in choice.notes


def test_fp8_on_a_processor_is_emulated_and_only_on_request() -> None:
    choice = plans_for(device="cpu", exact="float32", emulate=True, per_tensor=True)
    emulated = [plan for plan in choice.plans if plan.emulated]
    assert [plan.keep for plan in emulated] == [(), ("attention",), ("mlp",), ("first-last",), ()]
    assert emulated[-1].per_tensor
    assert EMULATED in choice.notes
    assert NOT_HERE not in choice.notes


def test_an_accelerator_tries_fp8_for_real() -> None:
    choice = plans_for(device="cuda:0", exact="bfloat16")
    assert [plan.name for plan in choice.plans] == [
        "original",
        "fp8",
        "fp8-keep-attention",
        "fp8-keep-mlp",
        "fp8-keep-first-last",
    ]
    assert not any(plan.emulated for plan in choice.plans)
    assert choice.notes == ()


def test_a_name_says_scheme_scale_and_what_is_kept() -> None:
    plan = named("int8-per-tensor-keep-first-last", "float32", accelerated=False)
    assert (plan.scheme, plan.per_tensor, plan.keep, plan.dtype) == ("int8", True, ("first-last",), "int8")
    assert named("int8", "bfloat16", accelerated=True).dtype == "bfloat16"


@pytest.mark.parametrize("name", ["", "fp4", "fp8-keep-", "fp8-keep-head", "int8-attention", "original-fp8"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UnknownPlanError) as caught:
        named(name, "float32", accelerated=False)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("stored", "device", "fast", "expected"),
    [
        (["BF16"], "cpu", True, "bfloat16"),
        (["BF16"], "cpu", False, "float32"),
        (["BF16", "F32"], "cpu", True, "float32"),
        (["F32"], "cuda", False, "bfloat16"),
    ],
)
def test_a_model_is_exact_in_the_arithmetic_of_its_weights(
    stored: list[str], device: str, fast: bool, expected: str
) -> None:
    assert exact_arithmetic(stored, device=device, fast_bfloat16=fast) == expected
