"""What shape of decoder a Hugging Face directory holds, read from its `config.json`.

Served are Llama and the architectures that differ from it only in which layers have biases and in sliding
windows. A window is not computed: it caps the positions instead, since inside of it attention is full anyway.
Whatever else a configuration asks for is refused by name rather than ignored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from copydesk.inference.engine.native.errors import UnreadableModelError, UnsupportedModelError
from copydesk.inference.engine.native.files import read_settings
from copydesk.inference.engine.native.rope import Rope, RopeKind

if TYPE_CHECKING:
    from copydesk.inference.quantisation.scheme import Quantisation

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
_MOST = {
    "vocab_size": 1 << 24,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 20,
    "num_hidden_layers": 1 << 12,
    "num_attention_heads": 1 << 16,
    "num_key_value_heads": 1 << 16,
    "head_dim": 1 << 16,
    "max_position_embeddings": 1 << 30,
}
"""Far more than any model has: what is more is damaged, or meant to use up memory."""

_MISTRAL_WINDOW = 4096  # what a Mistral configuration means when it does not say


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a Llama-family decoder. `positions` is the longest sequence it was made for, in tokens.

    `quantisation` says which of its weights are stored in 8 bits, None that none are.
    """

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    positions: int
    norm_epsilon: float
    rope: Rope
    tied: bool
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    quantisation: Quantisation | None = None

    @property
    def group(self) -> int:
        """How many query heads share one key and value head."""
        return self.heads // self.kv_heads


class _RopeFields(msgspec.Struct, frozen=True):
    rope_type: str | None = None
    type: str | None = None
    rope_theta: float | None = None
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192
    partial_rotary_factor: float = 1.0


class _ConfigFile(msgspec.Struct, frozen=True):
    """The keys that matter, under the names and with the defaults of transformers' LlamaConfig."""

    architectures: list[str]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    rope_theta: float = 10_000.0
    rope_scaling: _RopeFields | None = None
    rope_parameters: _RopeFields | None = None
    partial_rotary_factor: float = 1.0
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | msgspec.UnsetType | None = msgspec.UNSET
    use_sliding_window: bool = False
    quantization_config: dict[str, Any] | None = None


def read_config(directory: Path) -> ModelConfig:
    """Read `directory/config.json`.

    Raises:
        UnreadableModelError: it is missing, no JSON, or lacks a key.
        UnsupportedModelError: it describes a model that this engine does not compute.
    """
    path = directory / "config.json"
    try:
        file = msgspec.json.decode(read_settings(path), type=_ConfigFile)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableModelError(path, str(error)) from error
    architecture = _architecture(file)
    _refuse_unsupported(file)
    qwen = architecture == "Qwen2ForCausalLM"
    return ModelConfig(
        vocabulary=file.vocab_size,
        hidden=file.hidden_size,
        intermediate=file.intermediate_size,
        layers=file.num_hidden_layers,
        heads=file.num_attention_heads,
        kv_heads=_kv_heads(file),
        head_dim=_head_dim(file),
        positions=_positions(file, architecture),
        norm_epsilon=file.rms_norm_eps,
        rope=_rope(file),
        tied=file.tie_word_embeddings,
        qkv_bias=qwen or file.attention_bias,
        output_bias=file.attention_bias and not qwen,
        mlp_bias=file.mlp_bias,
        quantisation=_quantisation(file),
    )


def _architecture(file: _ConfigFile) -> str:
    for architecture in file.architectures:
        if architecture in ARCHITECTURES:
            return architecture
    raise UnsupportedModelError("architectures", file.architectures, "one of " + ", ".join(ARCHITECTURES))


def _refuse_unsupported(file: _ConfigFile) -> None:
    for key, most in _MOST.items():
        value = getattr(file, key)
        if value is not None and not 1 <= value <= most:
            raise UnsupportedModelError(key, value, f"1 to {most}")
    if not 0 <= file.rms_norm_eps < 1:
        raise UnsupportedModelError("rms_norm_eps", file.rms_norm_eps, "0 or more, and less than 1")
    if file.hidden_act != "silu":
        raise UnsupportedModelError("hidden_act", file.hidden_act, "silu")
    if file.partial_rotary_factor != 1.0:
        raise UnsupportedModelError("partial_rotary_factor", file.partial_rotary_factor, "1.0")


def _quantisation(file: _ConfigFile) -> Quantisation | None:
    from copydesk.inference.quantisation.scheme import parse_quantisation  # whose package may import this one

    return parse_quantisation({"quantization_config": file.quantization_config})


def _kv_heads(file: _ConfigFile) -> int:
    heads = file.num_attention_heads
    kv_heads = heads if file.num_key_value_heads is None else file.num_key_value_heads
    if kv_heads < 1 or heads % kv_heads:
        raise UnsupportedModelError("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads, {heads}")
    return kv_heads


def _head_dim(file: _ConfigFile) -> int:
    head_dim = file.hidden_size // file.num_attention_heads if file.head_dim is None else file.head_dim
    if head_dim < 2 or head_dim % 2:
        raise UnsupportedModelError("head_dim", head_dim, "an even number")
    return head_dim


def _positions(file: _ConfigFile, architecture: str) -> int:
    window: int | None = None
    if architecture == "MistralForCausalLM":
        window = _MISTRAL_WINDOW if file.sliding_window is msgspec.UNSET else file.sliding_window
    elif file.use_sliding_window and file.sliding_window is not msgspec.UNSET:
        window = file.sliding_window
    positions = file.max_position_embeddings
    return positions if window is None else min(positions, window)


def _rope(file: _ConfigFile) -> Rope:
    """Read `rope_parameters`, or what came before transformers 5: `rope_theta` with `rope_scaling`."""
    fields = file.rope_parameters or file.rope_scaling or _RopeFields()
    kind = fields.rope_type or fields.type or "default"
    if kind not in tuple(RopeKind):
        raise UnsupportedModelError("rope_scaling.rope_type", kind, "one of " + ", ".join(RopeKind))
    if fields.partial_rotary_factor != 1.0:
        raise UnsupportedModelError("rope_parameters.partial_rotary_factor", fields.partial_rotary_factor, "1.0")
    rope = Rope(
        theta=file.rope_theta if fields.rope_theta is None else fields.rope_theta,
        kind=RopeKind(kind),
        factor=fields.factor,
        low_frequency_factor=fields.low_freq_factor,
        high_frequency_factor=fields.high_freq_factor,
        original_positions=fields.original_max_position_embeddings,
    )
    _check_rope(rope)
    return rope


def _check_rope(rope: Rope) -> None:
    """Without these there are rotations that are infinite or no number."""
    if not (rope.theta > 0 and math.isfinite(rope.theta)):
        raise UnsupportedModelError("rope_theta", rope.theta, "a number greater than zero")
    if rope.kind is not RopeKind.DEFAULT and not (rope.factor > 0 and math.isfinite(rope.factor)):
        raise UnsupportedModelError("rope_scaling.factor", rope.factor, "a number greater than zero")
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    if rope.kind is RopeKind.LLAMA3 and not 0 < low < high:
        raise UnsupportedModelError("rope_scaling.high_freq_factor", high, f"more than low_freq_factor, {low}")
    if rope.kind is RopeKind.LLAMA3 and not 0 < rope.original_positions <= _MOST["max_position_embeddings"]:
        expected = "the length of sequences before stretching"
        raise UnsupportedModelError(
            "rope_scaling.original_max_position_embeddings", rope.original_positions, expected
        )
