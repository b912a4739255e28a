"""Which tensors config.json implies, beside those that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from copydesk.inference.inspection.files import Weights, some
from copydesk.inference.inspection.headers import Stored
from copydesk.inference.inspection.report import Problem, Quantised, Shape, Sizes, TypeSize, error, warning

FLOATS = ("F32", "BF16", "F16")
QUANTISED = {"fp8": "F8_E4M3", "int8": "I8"}
SCALES = (".weight_scale", ".weight_scale_inv", ".input_scale", ".weight_zero_point")
HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"
_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_HARMLESS = ("rotary_emb.inv_freq",)
_MOST_NAMED = 3


def sizes_of(weights: Weights) -> Sizes:
    """Add up what is stored."""
    by_dtype: dict[str, TypeSize] = {}
    for tensor in weights.tensors.values():
        known = by_dtype.get(tensor.dtype, TypeSize(0, 0, 0))
        numbers = 0 if tensor.name.endswith(SCALES) else tensor.numbers
        by_dtype[tensor.dtype] = TypeSize(
            known.tensors + 1, known.parameters + numbers, known.bytes + tensor.last - tensor.first
        )
    return Sizes(
        files=len(weights.files),
        tensors=len(weights.tensors),
        parameters=sum(one.parameters for one in by_dtype.values()),
        bytes=sum(one.bytes for one in by_dtype.values()),
        by_dtype=dict(sorted(by_dtype.items())),
    )


def implied(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors of a Llama-like decoder, by name."""
    s = shape
    queries, keys = s.heads * s.head_dim, s.kv_heads * s.head_dim
    tensors: dict[str, tuple[int, ...]] = {EMBEDDING: (s.vocabulary, s.hidden), "model.norm.weight": (s.hidden,)}
    if not s.tied:
        tensors[HEAD] = (s.vocabulary, s.hidden)
    for layer in range(s.layers):
        prefix = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{norm}.weight"] = (s.hidden,)
        for name, rows, columns, biased in (
            ("self_attn.q_proj", queries, s.hidden, s.qkv_bias),
            ("self_attn.k_proj", keys, s.hidden, s.qkv_bias),
            ("self_attn.v_proj", keys, s.hidden, s.qkv_bias),
            ("self_attn.o_proj", s.hidden, queries, s.output_bias),
            ("mlp.gate_proj", s.intermediate, s.hidden, s.mlp_bias),
            ("mlp.up_proj", s.intermediate, s.hidden, s.mlp_bias),
            ("mlp.down_proj", s.hidden, s.intermediate, s.mlp_bias),
        ):
            tensors[f"{prefix}.{name}.weight"] = (rows, columns)
            if biased:
                tensors[f"{prefix}.{name}.bias"] = (rows,)
    return tensors


def compare(weights: Weights, shape: Shape, quantised: Quantised | None) -> Iterator[Problem]:
    """Say where the tensors are not what config.json implies; shapes of unknown quantisations are not compared."""
    if quantised is not None and quantised.scheme not in QUANTISED:
        return
    found, wanted = weights.tensors, implied(shape)
    yield from _head_problems(found, shape)
    if weights.whole:
        yield from _missing(found, wanted, shape)
    yield from _shape_problems(found, wanted)
    yield from _type_problems(found, wanted, quantised)
    yield from _surplus(found, wanted, shape, quantised)


def _head_problems(found: Mapping[str, Stored], shape: Shape) -> Iterator[Problem]:
    if shape.tied and HEAD in found:
        what = "it is there, but tie_word_embeddings is true, so that the embedding is used in its place"
        yield warning(HEAD, what, "set that to false if the model has a head of its own")
    if not shape.tied and HEAD not in found and EMBEDDING in found:
        what = "it is missing, and tie_word_embeddings is not true"
        yield error(HEAD, what, "set that to true if the embedding is its output head too")


def _missing(found: Mapping[str, Stored], wanted: Mapping[str, object], shape: Shape) -> Iterator[Problem]:
    absent = [name for name in wanted if name not in found and name != HEAD]
    if not absent:
        return
    layers = {int(match[1]) for match in map(_LAYER.match, found) if match}
    if layers and max(layers) + 1 < shape.layers:
        yield _layers_differ(shape, max(layers) + 1)
        absent = [name for name in absent if not (match := _LAYER.match(name)) or int(match[1]) in layers]
    if absent:
        yield error("", f"the weights lack {some(absent)}", "get them again")


def _layers_differ(shape: Shape, found: int) -> Problem:
    return error("config.json", f"num_hidden_layers is {shape.layers}, and the weights have {found} layers")


def _shape_problems(found: Mapping[str, Stored], wanted: Mapping[str, tuple[int, ...]]) -> Iterator[Problem]:
    wrong = [name for name, shape in wanted.items() if name in found and found[name].shape != shape]
    for name in wrong[:_MOST_NAMED]:
        yield error(name, f"it has the shape {list(found[name].shape)}; config.json implies {list(wanted[name])}")
    if len(wrong) > _MOST_NAMED:
        yield error("", f"{len(wrong) - _MOST_NAMED} more tensors have other shapes than config.json implies")


def _type_problems(
    found: Mapping[str, Stored], wanted: Mapping[str, tuple[int, ...]], quantised: Quantised | None
) -> Iterator[Problem]:
    narrow = QUANTISED[quantised.scheme] if quantised is not None else ""
    stored = {name: found[name].dtype for name in wanted if name in found}
    narrowed = [name for name, dtype in stored.items() if dtype == narrow and len(wanted[name]) == 2]
    wrong = [name for name in stored.keys() - set(narrowed) if stored[name] not in FLOATS]
    wrong.sort()
    expected = "F32, BF16 or F16" + (f", or {narrow} where it is quantised" if narrow else "")
    for name in wrong[:_MOST_NAMED]:
        what = f"it is stored as {found[name].dtype}; expected {expected}"
        advice = "" if narrow else "if the weights are quantised, config.json must say so in quantization_config"
        yield error(name, what, advice)
    if len(wrong) > _MOST_NAMED:
        yield error("", f"{len(wrong) - _MOST_NAMED} more tensors are stored in types that are not served")
    scaleless = [name for name in narrowed if not any(_scale(name, ending) in found for ending in SCALES)]
    if scaleless:
        yield error("", f"the weights lack the scales of {some(scaleless)}", "quantise the model again")


def _surplus(
    found: Mapping[str, Stored], wanted: Mapping[str, object], shape: Shape, quantised: Quantised | None
) -> Iterator[Problem]:
    others = [
        name
        for name in found
        if name not in wanted
        and name != HEAD
        and not name.endswith(_HARMLESS)
        and not (quantised is not None and name.endswith(SCALES))
    ]
    layers = {int(match[1]) for match in map(_LAYER.match, others) if match and len(match[1]) < 10}
    if layers and max(layers) >= shape.layers:
        yield _layers_differ(shape, max(layers) + 1)
        others = [name for name in others if not (match := _LAYER.match(name)) or int(match[1]) < shape.layers]
    scales = [name for name in others if name.endswith(SCALES)]
    if scales:
        what = f"the weights have scales ({some(scales)}), and config.json has no quantization_config"
        yield error("", what, "get config.json again")
        others = [name for name in others if not name.endswith(SCALES)]
    if others:
        yield warning("", f"the weights have tensors that nothing reads: {some(others)}")


def _scale(name: str, ending: str) -> str:
    return name.removesuffix(".weight") + ending
