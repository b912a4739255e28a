"""What config.json says of a quantised model: written, read back, and refused by name where it is not served."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.inference.engine.native.errors import UnsupportedModelError
from copydesk.inference.quantisation.scheme import (
    Quantisation,
    Scheme,
    WeightScale,
    parse_quantisation,
    quantisation_config,
)

NAMES = st.from_regex(r"model\.layers\.[0-9]{1,2}\.(mlp|self_attn)\.[a-z]{1,6}_proj", fullmatch=True)
PATTERNS = st.sampled_from(["re:.*self_attn.*", "re:model.layers.1[.].*", "re:.*(up|gate)_proj$", "re:mlp"])
QUANTISATIONS = st.builds(
    Quantisation,
    st.sampled_from(Scheme),
    st.sampled_from(WeightScale),
    st.lists(st.one_of(NAMES, PATTERNS, st.just("lm_head")), max_size=5).map(tuple),
)
PLAIN = Quantisation(Scheme.FP8, WeightScale.CHANNEL, ("lm_head",))


@given(QUANTISATIONS)
def test_what_is_written_is_read_back(quantisation: Quantisation) -> None:
    config = {"hidden_size": 8, "quantization_config": quantisation_config(quantisation)}
    assert parse_quantisation(config) == quantisation


@given(QUANTISATIONS, NAMES)
def test_names_are_ignored_whole_and_expressions_from_their_beginning(
    quantisation: Quantisation, name: str
) -> None:
    ignored = any(
        re.match(entry[3:], name) is not None if entry.startswith("re:") else entry == name
        for entry in quantisation.ignore
    )
    assert quantisation.quantises(name) is not ignored


def test_a_name_is_no_pattern_and_no_beginning() -> None:
    quantisation = Quantisation(Scheme.INT8, WeightScale.TENSOR, ("model.layers.1", "re:mlp", ".*"))
    assert quantisation.quantises("model.layers.1.mlp.up_proj")


@pytest.mark.parametrize("config", [{}, {"quantization_config": None}])
def test_a_model_without_the_key_is_not_quantised(config: dict[str, Any]) -> None:
    assert parse_quantisation(config) is None


def test_what_other_tools_add_without_meaning_is_taken() -> None:
    config = quantisation_config(PLAIN)
    group = config["config_groups"].pop("group_0")
    group["weights"] |= {"observer": "minmax", "observer_kwargs": {}, "group_size": None, "actorder": None}
    group["input_activations"] |= {"observer": None, "block_structure": None}
    config["config_groups"]["FP8_DYNAMIC"] = group | {"output_activations": None, "format": "float-quantized"}
    config |= {"quantization_status": "frozen", "global_compression_ratio": 1.6, "version": "0.9"}
    config |= {"sparsity_config": {}, "transform_config": {}}
    assert parse_quantisation({"quantization_config": config}) == PLAIN


WEIGHTS = "config_groups.group_0.weights"
ACTIVATIONS = "config_groups.group_0.input_activations"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("quant_method", "gptq"),
        ("quant_method", None),
        ("quantization_status", "initialized"),
        ("format", "pack-quantized"),
        ("format", "int-quantized"),
        ("kv_cache_scheme", {"num_bits": 8}),
        ("sparsity_config", {"format": "sparse-24-bitmask"}),
        ("config_groups", {}),
        ("config_groups", None),
        ("ignore", "lm_head"),
        ("ignore", ["re:("]),
        ("config_groups.group_0.targets", ["re:.*mlp.*"]),
        ("config_groups.group_0.output_activations", {"num_bits": 8}),
        ("config_groups.group_0.format", "naive-quantized"),
        (WEIGHTS, None),
        (f"{WEIGHTS}.num_bits", 4),
        (f"{WEIGHTS}.num_bits", True),
        (f"{WEIGHTS}.symmetric", False),
        (f"{WEIGHTS}.symmetric", 1),
        (f"{WEIGHTS}.strategy", "group"),
        (f"{WEIGHTS}.strategy", "block"),
        (f"{WEIGHTS}.group_size", 128),
        (f"{WEIGHTS}.dynamic", True),
        (ACTIVATIONS, None),
        (f"{ACTIVATIONS}.dynamic", False),
        (f"{ACTIVATIONS}.strategy", "tensor"),
        (f"{ACTIVATIONS}.type", "int"),
    ],
)
def test_what_is_not_served_is_refused_by_its_path(key: str, value: Any) -> None:
    config = copy.deepcopy(quantisation_config(PLAIN))
    place: Any = config
    *parents, last = key.split(".")
    for parent in parents:
        place = place[parent]
    place[last] = value
    with pytest.raises(UnsupportedModelError) as raised:
        parse_quantisation({"quantization_config": config})
    # Another format asks for other numbers, and is refused where these begin to differ.
    named = {"int-quantized": f"{WEIGHTS}.type"}.get(str(value), key)
    assert raised.value.key == f"quantization_config.{named}"


def test_two_groups_are_more_than_is_served() -> None:
    config = quantisation_config(PLAIN)
    config["config_groups"]["group_1"] = config["config_groups"]["group_0"]
    with pytest.raises(UnsupportedModelError, match="one group"):
        parse_quantisation({"quantization_config": config})
