"""The base model with an adapter on every linear layer, written out so that torch compiles one layer for all.

The base is frozen in bfloat16, the adapter is float32. Rows have a fixed width, and hold several pairs each, which
do not see one another; one shape means one compilation. On processors, a compiled layer takes about half the time:
much of a step is small operations on large arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch's own documentation gives it
from safetensors.torch import load_file
from torch import Tensor

from recipe.batches import Batch

_LAYERS, _HEADS, _KV_HEADS, _HEAD, _HIDDEN = 30, 9, 3, 64, 576
_ROPE_BASE, _EPSILON = 100_000.0, 1e-5
_SEVEN = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


@dataclass(frozen=True)
class Layer:
    """One block: its frozen tensors, and A and B of each of its linear layers."""

    norms: tuple[Tensor, Tensor]
    weights: list[Tensor]
    adapter: list[tuple[Tensor, Tensor]]


class Decoder:
    """SmolLM2-135M, frozen, with an adapter; `named` has the trained tensors by PEFT's names."""

    def __init__(self, base: Path, rank: int, alpha: int) -> None:
        tensors = load_file(base / "model.safetensors")
        self.named: dict[str, Tensor] = {}
        self.layers = [self._layer(tensors, index, rank) for index in range(_LAYERS)]
        self.embedding = tensors["model.embed_tokens.weight"]
        self.norm = tensors["model.norm.weight"]
        self.scale = alpha / rank
        self._block: Callable[..., Tensor] = torch.compile(_block, dynamic=False)
        self._head: Callable[..., Tensor] = torch.compile(_head, dynamic=False)

    def _layer(self, tensors: dict[str, Tensor], index: int, rank: int) -> Layer:
        prefix = f"model.layers.{index}"
        adapter = []
        for name in _SEVEN:
            outputs, inputs = tensors[f"{prefix}.{name}.weight"].shape
            down, up = torch.empty(rank, inputs), torch.zeros(outputs, rank)
            torch.nn.init.kaiming_uniform_(down, a=math.sqrt(5))
            key = f"base_model.model.{prefix}.{name}"
            self.named[f"{key}.lora_A.weight"], self.named[f"{key}.lora_B.weight"] = down, up
            adapter.append((down.requires_grad_(True), up.requires_grad_(True)))
        before, after = (tensors[f"{prefix}.{name}_layernorm.weight"] for name in ("input", "post_attention"))
        return Layer((before, after), [tensors[f"{prefix}.{name}.weight"] for name in _SEVEN], adapter)

    def loss(self, batch: Batch) -> Tensor:
        """The weighted mean cross entropy where there is something to learn."""
        cosine, sine = _rotations(batch.positions)
        x = self.embedding[batch.ids]
        for layer in self.layers:
            x = self._block(x, batch.segments, cosine, sine, layer.norms, layer.weights, layer.adapter, self.scale)
        hidden = x.reshape(-1, _HIDDEN)[batch.places]
        return self._head(hidden, self.norm, self.embedding, batch.labels, batch.weights)


def _rotations(positions: Tensor) -> tuple[Tensor, Tensor]:
    frequencies = _ROPE_BASE ** (-torch.arange(0, _HEAD, 2).float() / _HEAD)
    angles = positions[:, None, :, None].float() * frequencies.repeat(2)
    return angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)


def _normalise(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + _EPSILON)).to(x.dtype) * weight


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


def _linear(x: Tensor, weight: Tensor, adapter: tuple[Tensor, Tensor], scale: float) -> Tensor:
    down, up = adapter
    return x @ weight.t() + (x @ (down * scale).to(x.dtype).t()) @ up.to(x.dtype).t()


def _block(
    x: Tensor,
    segments: Tensor,
    cosine: Tensor,
    sine: Tensor,
    norms: tuple[Tensor, Tensor],
    weights: list[Tensor],
    adapter: list[tuple[Tensor, Tensor]],
    scale: float,
) -> Tensor:
    rows, width, _ = x.shape

    def linear(value: Tensor, which: int) -> Tensor:
        return _linear(value, weights[which], adapter[which], scale)

    def heads(value: Tensor) -> Tensor:
        return value.view(rows, width, -1, _HEAD).transpose(1, 2)

    h = _normalise(x, norms[0]).view(-1, _HIDDEN)
    q, k, v = (
        _rotate(heads(linear(h, 0)), cosine, sine),
        _rotate(heads(linear(h, 1)), cosine, sine),
        heads(linear(h, 2)),
    )
    attended = _attend(q, k, v, segments).transpose(1, 2).reshape(-1, _HIDDEN)
    x = x + linear(attended, 3).view(x.shape)
    h = _normalise(x, norms[1]).view(-1, _HIDDEN)
    return x + linear(F.silu(linear(h, 4)) * linear(h, 5), 6).view(x.shape)


def _attend(q: Tensor, k: Tensor, v: Tensor, segments: Tensor) -> Tensor:
    """Attention in groups of heads, each pair to itself, and backwards only."""
    rows, _, width, _ = q.shape
    shared = _HEADS // _KV_HEADS
    order = torch.arange(width)
    seen = (segments[:, :, None] == segments[:, None, :]) & (order[:, None] >= order)
    hidden = torch.where(seen, 0.0, float("-inf"))[:, None, None]
    groups = q.reshape(rows * _KV_HEADS, shared * width, _HEAD)
    k, v = (value.reshape(rows * _KV_HEADS, width, _HEAD) for value in (k, v))
    scores = torch.bmm(groups, k.transpose(1, 2)).view(rows, _KV_HEADS, shared, width, width)
    shares = torch.softmax(scores.float() * _HEAD**-0.5 + hidden, -1).to(q.dtype)
    attended = torch.bmm(shares.view(rows * _KV_HEADS, shared * width, width), v)
    return attended.view(rows, _HEADS, width, _HEAD)


def _head(hidden: Tensor, norm: Tensor, embedding: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    logits = (_normalise(hidden, norm) @ embedding.t()).float()
    losses = F.cross_entropy(logits, labels, reduction="none")
    return (losses * weights).sum() / weights.sum()
