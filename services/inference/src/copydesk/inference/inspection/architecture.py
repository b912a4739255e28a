"""What config.json says of a decoder, read leniently: for a report, not for computing with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from copydesk.inference.correction.errors import ModelFileError
from copydesk.inference.correction.files import read_content
from copydesk.inference.engine.native.config import ARCHITECTURES, read_config
from copydesk.inference.engine.native.errors import ModelError, UnreadableModelError
from copydesk.inference.inspection.report import EngineSupport, Problem, Quantised, Shape, error

FILE = "config.json"
MOST_LAYERS = 10_000
LARGEST = 1 << 40
_FORMATS = {"float-quantized": "fp8", "int-quantized": "int8"}
_VLLM = frozenset(
    {
        *ARCHITECTURES,
        "CohereForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV3ForCausalLM",
        "FalconForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "GemmaForCausalLM",
        "Glm4ForCausalLM",
        "GPT2LMHeadModel",
        "GPTNeoXForCausalLM",
        "GraniteForCausalLM",
        "MixtralForCausalLM",
        "OPTForCausalLM",
        "Olmo2ForCausalLM",
        "OlmoForCausalLM",
        "Phi3ForCausalLM",
        "PhiForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "SmolLM3ForCausalLM",
        "StableLmForCausalLM",
        "Starcoder2ForCausalLM",
    }
)
"""Text generators that vLLM has had for years; it computes many more."""


def read_json_file(directory: Path, name: str) -> tuple[dict[str, Any], Problem | None]:
    """Return a JSON object of the directory, {} with the problem where there is none."""
    try:
        content = json.loads(read_content(directory, name).decode())
    except FileNotFoundError:
        return {}, error(name, "there is no such file", "get it again from where the model is from")
    except ModelFileError as problem:
        return {}, error(name, problem.reason, "get it again from where the model is from")
    except (ValueError, RecursionError) as problem:
        return {}, error(name, f"it cannot be read: {problem}", "get it again from where the model is from")
    if not isinstance(content, dict):
        return {}, error(name, "expected a JSON object")
    return content, None


def architecture_of(config: Mapping[str, Any]) -> str:
    """Return the first architecture that is named, preferably one that this engine knows."""
    names = config.get("architectures")
    known = [one for one in names if isinstance(one, str)] if isinstance(names, list) else []
    return next((one for one in known if one in ARCHITECTURES), known[0] if known else "")


def engine_support(directory: Path, architecture: str, quantised: Quantised | None) -> tuple[EngineSupport, ...]:
    """Say which engine computes what config.json describes."""
    try:
        read_config(directory)
        native = EngineSupport("native", supported=True)
    except ModelError as problem:
        native = EngineSupport("native", supported=False, reason=str(problem))
    return native, _vllm_support(architecture, quantised)


def unreadable(directory: Path) -> list[Problem]:
    """Say what keeps config.json from being understood, where it names an architecture that is."""
    try:
        read_config(directory)
    except UnreadableModelError as problem:
        return [error(FILE, problem.reason)]
    except ModelError:
        return []
    return []


def shape_of(config: Mapping[str, Any], architecture: str) -> tuple[Shape | None, list[Problem]]:
    """Return the numbers of a Llama-like decoder, or what is wrong with them."""
    problems: list[Problem] = []

    def number(key: str, default: int | None = None) -> int:
        value = config.get(key)
        value = default if value is None else value
        if type(value) is int and 0 < value < LARGEST:
            return value
        what = f"{key} is {value!r}; expected a whole number above 0" if key in config else f"{key} is missing"
        problems.append(error(FILE, what))
        return 0

    vocabulary, hidden, layers, heads = (
        number(key) for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    )
    shape = Shape(
        vocabulary=vocabulary,
        hidden=hidden,
        intermediate=number("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=number("num_key_value_heads", heads or 1),
        head_dim=number("head_dim", hidden // heads if heads and hidden >= heads else 1),
        context=number("max_position_embeddings", 2048),
        tied=config.get("tie_word_embeddings") is True,
        qkv_bias=architecture == "Qwen2ForCausalLM" or config.get("attention_bias") is True,
        output_bias=architecture != "Qwen2ForCausalLM" and config.get("attention_bias") is True,
        mlp_bias=config.get("mlp_bias") is True,
    )
    if layers > MOST_LAYERS:
        problems.append(error(FILE, f"num_hidden_layers is {layers}; expected {MOST_LAYERS} at the most"))
    return (None, problems) if problems else (shape, problems)


def quantisation_of(config: Mapping[str, Any]) -> Quantised | None:
    """Return what is said of 8-bit weights; other schemes than FP8 and INT8 have none here."""
    content = config.get("quantization_config")
    if not isinstance(content, Mapping):
        return None
    method = str(content.get("quant_method", ""))
    scheme = _FORMATS.get(str(content.get("format")), "fp8" if method == "fp8" else "")
    groups = content.get("config_groups")
    group: Any = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = group.get("weights") if isinstance(group, Mapping) else None
    strategy = weights.get("strategy") if isinstance(weights, Mapping) else None
    ignored = content.get("ignore")
    names = tuple(map(str, ignored)) if isinstance(ignored, list) else ()
    return Quantised(method, scheme, strategy == "tensor", names)


def _vllm_support(architecture: str, quantised: Quantised | None) -> EngineSupport:
    if not architecture:
        return EngineSupport("vllm", supported=False, reason="config.json names no architecture")
    if architecture in _VLLM:
        how = f"; its weights are quantised by {quantised.method or 'an unnamed method'}" if quantised else ""
        return EngineSupport("vllm", supported=True, reason=how.removeprefix("; "))
    reason = f"{architecture} is not among those known here; see the list of supported models of vLLM"
    return EngineSupport("vllm", supported=None, reason=reason)
