"""Builds the layers of a decoder from a checkpoint, one at a time, so that no second copy of it is ever held."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from copydesk.common.telemetry import get_logger
from copydesk.inference.engine.native.checkpoint import CheckpointReader
from copydesk.inference.engine.native.config import ModelConfig
from copydesk.inference.engine.native.fp8.choice import Fp8Arithmetic, choose_arithmetic
from copydesk.inference.engine.native.linear import Linear, can_pack
from copydesk.inference.engine.native.maps import Maps, Part
from copydesk.inference.engine.native.scales import kept_modules

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer, as maps of the residual stream [tokens, hidden]; norms are in them, to be fused there.

    `attention_in` is the norm, then queries, keys and values [tokens, (heads + 2 * kv_heads) * head_dim]; `output`
    maps what was attended to, [tokens, heads * head_dim], back; `mlp` is norm, gate, up, activation and down.
    """

    attention_in: Linear
    output: Linear
    mlp: Linear


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """The whole decoder: `embedding` is [vocabulary, hidden]; `head` is the last norm, then the scores."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    head: Linear


def load_weights(
    directory: Path, config: ModelConfig, dtype: torch.dtype, device: torch.device, *, fp8: bool = False
) -> DecoderWeights:
    """Read the safetensors of `directory`; see `CheckpointReader` for the errors.

    With `fp8`, weights in FP8 are computed with as they are, and `dtype` is for everything else; without, they are
    multiplied out once, here, like those in INT8.
    """
    arithmetic = choose_arithmetic(device) if fp8 else None
    maps = Maps(dtype, packed=can_pack(dtype, device), fp8=arithmetic)
    with CheckpointReader(directory, dtype, config.quantisation) as reader:
        decoder = _Builder(reader, config, device, maps).decoder()
    _log_arithmetic(config, dtype, device, arithmetic)
    for outputs, inputs in sorted(maps.refused):
        _log.warning("fp8_shape_dequantised", outputs=outputs, inputs=inputs, expected="multiples of 16")
    return decoder


def _log_arithmetic(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, arithmetic: Fp8Arithmetic | None
) -> None:
    if config.quantisation is None:
        return
    kept = len(kept_modules(config.quantisation, config.layers))
    event = "weights_dequantised" if arithmetic is None else "weights_in_fp8"
    scheme = config.quantisation.scheme.value
    _log.info(event, scheme=scheme, kept_modules=kept, dtype=str(dtype), device=str(device))


class _Builder:
    """Knows the names of Llama's tensors."""

    def __init__(self, reader: CheckpointReader, config: ModelConfig, device: torch.device, maps: Maps) -> None:
        self._reader = reader
        self._config = config
        self._device = device
        self._maps = maps

    def decoder(self) -> DecoderWeights:
        c = self._config
        embedding = self._tensor("model.embed_tokens.weight", c.vocabulary, c.hidden)
        return DecoderWeights(
            embedding=embedding,
            layers=tuple(self._layer(f"model.layers.{i}") for i in range(c.layers)),
            head=self._maps.normed(self._norm("model.norm"), c.norm_epsilon, [self._head(embedding)]),
        )

    def _head(self, embedding: torch.Tensor) -> Part:
        c = self._config
        if c.tied:  # what is packed is a copy, since the embedding must stay readable by row
            return Part(embedding.clone() if self._maps.packed else embedding)
        return self._part("lm_head", c.vocabulary, c.hidden, bias=False)

    def _layer(self, prefix: str) -> LayerWeights:
        c = self._config
        queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        qkv = [
            self._part(f"{attention}.{name}_proj", rows, c.hidden, bias=c.qkv_bias)
            for name, rows in (("q", queries), ("k", keys), ("v", keys))
        ]
        gate, up = (
            self._part(f"{mlp}.{name}_proj", c.intermediate, c.hidden, bias=c.mlp_bias) for name in ("gate", "up")
        )
        return LayerWeights(
            attention_in=self._maps.normed(self._norm(f"{prefix}.input_layernorm"), c.norm_epsilon, qkv),
            output=self._maps.linear([self._part(f"{attention}.o_proj", c.hidden, queries, bias=c.output_bias)]),
            mlp=self._maps.mlp(
                self._norm(f"{prefix}.post_attention_layernorm"),
                c.norm_epsilon,
                gate,
                up,
                self._part(f"{mlp}.down_proj", c.hidden, c.intermediate, bias=c.mlp_bias),
            ),
        )

    def _norm(self, name: str) -> torch.Tensor:
        return self._tensor(f"{name}.weight", self._config.hidden)

    def _part(self, module: str, rows: int, columns: int, *, bias: bool) -> Part:
        weight = self._reader.weight(module, rows, columns).to(self._device)
        return Part(weight, self._tensor(f"{module}.bias", rows) if bias else None)

    def _tensor(self, name: str, *shape: int) -> torch.Tensor:
        return self._reader.tensor(name, *shape).to(self._device)
