"""Which modules a plan keeps: groups, names, expressions, what kernels cannot take, and what goes with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from copydesk.inference.engine.native.config import ModelConfig
from copydesk.inference.engine.native.rope import Rope
from copydesk.inference.quantisation.errors import (
    InvalidPatternError,
    NothingToQuantiseError,
    UnmatchedPatternError,
)
from copydesk.inference.quantisation.modules import linear_modules
from copydesk.inference.quantisation.plan import PrecisionPlan, resolve
from copydesk.inference.quantisation.scheme import Scheme, WeightScale

CONFIG = ModelConfig(
    vocabulary=96,
    hidden=64,
    intermediate=128,
    layers=3,
    heads=4,
    kv_heads=2,
    head_dim=16,
    positions=128,
    norm_epsilon=1e-5,
    rope=Rope(),
    tied=False,
)
MODULES = linear_modules(CONFIG)
NAMES = [module.name for module in MODULES]


def kept(*keep: str, config: ModelConfig = CONFIG, scheme: Scheme = Scheme.FP8) -> dict[str, str]:
    return resolve(PrecisionPlan(scheme, keep=keep), linear_modules(config)).kept


def test_without_a_wish_everything_but_the_head_is_quantised() -> None:
    quantisation = resolve(PrecisionPlan(per_tensor=True), MODULES).quantisation
    assert quantisation.ignore == ("lm_head",)
    assert quantisation.weight_scale is WeightScale.TENSOR
    assert all(quantisation.quantises(name) for name in NAMES)


def test_groups_are_attention_mlp_and_the_layers_at_both_ends() -> None:
    assert list(kept("attention")) == [name for name in NAMES if ".self_attn." in name]
    assert list(kept("mlp")) == [name for name in NAMES if ".mlp." in name]
    assert list(kept("first-last")) == [name for name in NAMES if ".layers.1." not in name]


@pytest.mark.parametrize("pattern", ["*.down_proj", "re:.*down_proj$", "model.layers.?.mlp.down_proj"])
def test_wildcards_and_expressions_match_names(pattern: str) -> None:
    assert list(kept(pattern)) == [name for name in NAMES if name.endswith("down_proj")]


def test_what_is_kept_is_listed_by_name_in_the_order_of_the_model_whatever_was_said_first() -> None:
    one = resolve(PrecisionPlan(keep=("*.2.mlp.down_proj", "*.0.self_attn.o_proj")), MODULES).quantisation
    other = resolve(PrecisionPlan(keep=("*.0.self_attn.o_proj", "re:.*2.mlp.down_proj")), MODULES).quantisation
    assert one == other
    assert one.ignore == ("lm_head", "model.layers.0.self_attn.o_proj", "model.layers.2.mlp.down_proj")


def test_modules_that_share_a_product_are_kept_together() -> None:
    found = kept("model.layers.1.self_attn.k_proj", "*.0.mlp.up_proj")
    assert list(found) == [
        "model.layers.0.mlp.gate_proj",
        "model.layers.0.mlp.up_proj",
        *(f"model.layers.1.self_attn.{name}_proj" for name in "qkv"),
    ]
    assert found["model.layers.1.self_attn.q_proj"] == (
        "computed in one product with model.layers.1.self_attn.k_proj"
    )


def test_sizes_that_fp8_kernels_cannot_take_stay_as_they_are_and_int8_takes_them() -> None:
    odd = replace(CONFIG, intermediate=120)
    assert list(kept(config=odd)) == [name for name in NAMES if ".mlp." in name]
    assert kept(config=odd)["model.layers.0.mlp.up_proj"] == "120 x 64: FP8 kernels need multiples of 16"
    assert kept(config=odd, scheme=Scheme.INT8) == {}


def test_the_head_may_be_named_though_it_stays_anyway() -> None:
    assert kept("lm_head") == {}


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("atention", "attention"),
        ("firstlast", "first-last"),
        ("*.q_prj", "*.q_proj"),
        ("down", "*.down_proj"),
        ("re:.*selfattn.*", "*.self_attn.*"),
        ("model.layers.0.mlp.up_pro", "model.layers.0.mlp.up_proj"),
    ],
)
def test_a_pattern_that_matches_nothing_names_what_is_near(pattern: str, near: str) -> None:
    with pytest.raises(UnmatchedPatternError) as raised:
        kept(pattern)
    assert raised.value.pattern == pattern
    assert near in raised.value.near
    assert near in str(raised.value)
    kept(near, scheme=Scheme.INT8)  # what is offered does match


def test_a_pattern_like_nothing_names_nothing() -> None:
    with pytest.raises(UnmatchedPatternError) as raised:
        kept("*xyzzy*")
    assert raised.value.near == ()


def test_a_broken_expression_says_so() -> None:
    with pytest.raises(InvalidPatternError, match="unterminated"):
        kept("re:(")


def test_a_plan_that_keeps_everything_is_refused_with_its_reasons() -> None:
    with pytest.raises(NothingToQuantiseError) as raised:
        kept("attention", "mlp")
    assert raised.value.reasons == ("--keep attention", "--keep mlp")
