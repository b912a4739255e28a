"""How vLLM is sized, and with which arguments it is started: decisions over data, without vLLM."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from copydesk.common.errors import CopydeskError

DRAFT_TOKENS, LONGEST_MATCH, SHORTEST_MATCH = 16, 4, 2
"""How many tokens are guessed, behind a match of how many: on two cores nothing else that was tried did better."""

_CPU_BLOCK, _GPU_BLOCK = 128, 16  # tokens; vLLM's own
_UNKNOWN_SHAPE_BYTES = 1 << 30
_GPU = re.compile(r"cuda(:[0-9]{1,3})?")


class UnservedOptionError(CopydeskError):
    """What vLLM does not do: `option` has the name of a field of `VllmOptions`."""

    def __init__(self, option: str, value: object, expected: str) -> None:
        self.option = option
        self.value = value
        self.expected = expected
        super().__init__(f"{option} is {value!r}; expected {expected}")


class UnreadableConfigError(CopydeskError):
    """`path` is missing, or holds no JSON object."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """How an engine is sized, and what it runs on.

    `slots` requests run side by side, `queue` more wait, each of `context` tokens at most. `dtype` is "auto",
    "bfloat16" or "float32", of what is not quantised. `cache_tokens` are those whose keys and values there is room
    for: 0 is all slots can hold on a CPU, and on a GPU what `gpu_memory`, a share of its memory, leaves. `draft`
    has tokens guessed, `asynchronous` steps begun before the last one is dealt with where vLLM can, and `eager`
    nothing compiled.
    """

    dtype: str = "auto"
    slots: int = 32
    context: int = 512
    queue: int = 256
    cache_tokens: int = 0
    draft: bool = True
    asynchronous: bool = True
    device: str = "cpu"
    gpu_memory: float = 0.9
    eager: bool = False

    @property
    def is_cpu(self) -> bool:
        """Whether a processor computes."""
        return self.device == "cpu"


def read_config(directory: Path) -> Mapping[str, Any]:
    """Return what `directory/config.json` holds; raises `UnreadableConfigError`."""
    path = directory / "config.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise UnreadableConfigError(path, error.strerror or str(error)) from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableConfigError(path, str(error)) from error


def check_options(options: VllmOptions, config: Mapping[str, Any]) -> None:
    """Raise `UnservedOptionError` for what this model or vLLM does not allow."""
    if options.dtype not in {"auto", "bfloat16", "float32"}:
        expected = "auto, bfloat16 or float32: vLLM computes in 8 bits where the model's weights are quantised"
        raise UnservedOptionError("dtype", options.dtype, expected)
    if not options.is_cpu and not _GPU.fullmatch(options.device):
        raise UnservedOptionError("device", options.device, "cpu, cuda or cuda:N with vLLM")
    longest = config.get("max_position_embeddings")
    if isinstance(longest, int) and options.context > longest:
        expected = f"8 to {longest}, the model's longest sequence"
        raise UnservedOptionError("context", options.context, expected)
    if options.is_cpu and _has_fp8_by_tensor(config):
        expected = "cuda: on a CPU vLLM does not load FP8 of one scale a tensor, but of one a channel, and INT8"
        raise UnservedOptionError("device", options.device, expected)


def _has_fp8_by_tensor(config: Mapping[str, Any]) -> bool:
    """Whether a compressed-tensors checkpoint shares scales so that vLLM rounds anew when it merges matrices.

    Its builds for CPUs have no operator for that. Whatever else the configuration says is vLLM's to judge.
    """
    try:
        quantisation = msgspec.convert(config.get("quantization_config") or {}, _Quantisation)
    except msgspec.ValidationError:
        return False
    weights = [group.weights for group in quantisation.config_groups.values() if group.weights]
    return any((each.type, each.num_bits, each.strategy) == ("float", 8, "tensor") for each in weights)


class _Weights(msgspec.Struct):
    type: str | None = None
    num_bits: int | None = None
    strategy: str | None = None


class _Group(msgspec.Struct):
    weights: _Weights | None = None


class _Quantisation(msgspec.Struct):
    config_groups: dict[str, _Group] = {}


def engine_arguments(directory: Path, options: VllmOptions, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of vLLM's `AsyncEngineArgs`.

    Tokens go in and come out, so that no tokenizer is loaded; safetensors alone are, since other weights can run
    code. No prefix is kept: an answer then depends on no other request.
    """
    arguments: dict[str, Any] = {
        "model": str(directory),
        "skip_tokenizer_init": True,
        "load_format": "safetensors",
        "use_tqdm_on_load": False,
        "dtype": options.dtype,
        "max_model_len": options.context,
        "max_num_seqs": options.slots,
        "enable_prefix_caching": False,
        "enforce_eager": options.eager,
        "generation_config": "vllm",
        "async_scheduling": None if options.asynchronous else False,
        "disable_log_stats": True,
        "enable_log_requests": False,
    }
    if options.is_cpu or options.cache_tokens:
        arguments["kv_cache_memory_bytes"] = cache_bytes(options, config)
    else:
        arguments["gpu_memory_utilization"] = options.gpu_memory
    if options.draft:
        arguments["speculative_config"] = _speculation(options)
        arguments["per_request_spec_decode_metrics"] = "summary"
    return arguments


def _speculation(options: VllmOptions) -> dict[str, Any]:
    """Guesses by look-up. On a GPU the look-up that runs there is the one that leaves scheduling asynchronous."""
    return {
        "method": "ngram" if options.is_cpu or not options.asynchronous else "ngram_gpu",
        "num_speculative_tokens": DRAFT_TOKENS,
        "prompt_lookup_max": LONGEST_MATCH,
        "prompt_lookup_min": SHORTEST_MATCH,
    }


def cache_bytes(options: VllmOptions, config: Mapping[str, Any]) -> int:
    """Return the memory of the cache: in whole blocks, with room for guesses, and a block that vLLM holds back.

    A gibibyte for a model whose configuration does not have the keys of a Llama's.
    """
    each = _bytes_a_token(options, config)
    if each is None:
        return _UNKNOWN_SHAPE_BYTES
    block = _CPU_BLOCK if options.is_cpu else _GPU_BLOCK
    longest = options.context + (DRAFT_TOKENS if options.draft else 0)
    if options.cache_tokens:
        blocks = math.ceil(max(options.cache_tokens, longest) / block)
    else:
        blocks = options.slots * math.ceil(longest / block)
    return (blocks + 1) * block * each


def _bytes_a_token(options: VllmOptions, config: Mapping[str, Any]) -> int | None:
    heads, hidden, layers = (
        config.get(key) for key in ("num_attention_heads", "hidden_size", "num_hidden_layers")
    )
    if not (_is_count(heads) and _is_count(hidden) and _is_count(layers)):
        return None
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    if not (_is_count(kv_heads) and _is_count(head_dim)):
        return None
    stored = config.get("dtype") or config.get("torch_dtype")
    wide = options.dtype == "float32" or (options.dtype == "auto" and stored == "float32")
    return int(2 * layers * kv_heads * head_dim * (4 if wide else 2))


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
