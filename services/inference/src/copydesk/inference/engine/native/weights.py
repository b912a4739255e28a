"""Builds the layers of a decoder from a checkpoint, one at a time, so that no second copy of it is ever held.

Query, key and value matrices become one, and so do gate and up: fewer, larger products. A tied output head
that is packed is a copy of the embedding, which must itself stay readable by row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from copydesk.inference.engine.native.checkpoint import CheckpointReader
from copydesk.inference.engine.native.config import ModelConfig
from copydesk.inference.engine.native.linear import (
    Chain,
    Linear,
    PackedGate,
    PackedLinear,
    PlainGate,
    PlainLinear,
    RmsNorm,
    can_pack,
)

_Pair = tuple[torch.Tensor, torch.Tensor | None]  # weight and bias


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


def load_weights(directory: Path, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> DecoderWeights:
    """Read the safetensors of `directory`; see `CheckpointReader` for the errors."""
    with CheckpointReader(directory, dtype) as reader:
        builder = _Builder(reader, config, device, packed=can_pack(dtype, device))
        return builder.decoder()


class _Builder:
    """Knows the names of Llama's tensors."""

    def __init__(
        self, reader: CheckpointReader, config: ModelConfig, device: torch.device, *, packed: bool
    ) -> None:
        self._reader = reader
        self._config = config
        self._device = device
        self._packed = packed

    def decoder(self) -> DecoderWeights:
        c = self._config
        embedding = self._tensor("model.embed_tokens.weight", c.vocabulary, c.hidden)
        return DecoderWeights(
            embedding=embedding,
            layers=tuple(self._layer(f"model.layers.{i}") for i in range(c.layers)),
            head=Chain(self._norm("model.norm"), self._head(embedding)),
        )

    def _head(self, embedding: torch.Tensor) -> Linear:
        c = self._config
        if not c.tied:
            return self._linear((self._tensor("lm_head.weight", c.vocabulary, c.hidden), None))
        return self._linear((embedding.clone() if self._packed else embedding, None))

    def _layer(self, prefix: str) -> LayerWeights:
        c = self._config
        queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
        attention = f"{prefix}.self_attn"
        qkv = _stack(
            self._pair(f"{attention}.{name}_proj", rows, c.hidden, bias=c.qkv_bias)
            for name, rows in (("q", queries), ("k", keys), ("v", keys))
        )
        return LayerWeights(
            attention_in=Chain(self._norm(f"{prefix}.input_layernorm"), self._linear(qkv)),
            output=self._linear(self._pair(f"{attention}.o_proj", c.hidden, queries, bias=c.output_bias)),
            mlp=Chain(
                self._norm(f"{prefix}.post_attention_layernorm"),
                self._gate_up(f"{prefix}.mlp"),
                self._linear(self._pair(f"{prefix}.mlp.down_proj", c.hidden, c.intermediate, bias=c.mlp_bias)),
            ),
        )

    def _norm(self, name: str) -> Linear:
        return RmsNorm(self._tensor(f"{name}.weight", self._config.hidden), self._config.norm_epsilon)

    def _gate_up(self, prefix: str) -> Linear:
        c = self._config
        gate, up = (
            self._pair(f"{prefix}.{name}_proj", c.intermediate, c.hidden, bias=c.mlp_bias)
            for name in ("gate", "up")
        )
        if self._packed:
            return PackedGate(gate[0], up[0], gate[1], up[1])
        return PlainGate(PlainLinear(*_stack((gate, up))))

    def _linear(self, pair: _Pair) -> Linear:
        return PackedLinear(*pair) if self._packed else PlainLinear(*pair)

    def _pair(self, name: str, rows: int, columns: int, *, bias: bool) -> _Pair:
        weight = self._tensor(f"{name}.weight", rows, columns)
        return weight, self._tensor(f"{name}.bias", rows) if bias else None

    def _tensor(self, name: str, *shape: int) -> torch.Tensor:
        return self._reader.tensor(name, *shape).to(self._device)


def _stack(pairs: Iterable[_Pair]) -> _Pair:
    weights, biases = zip(*pairs, strict=True)
    if biases[0] is None:
        return torch.cat(weights), None
    return torch.cat(weights), torch.cat(biases)
