"""A Llama-family decoder in float32, one module at a time over all texts: it holds one weight, never the model.

Several streams of activations can go through together, such as those of a model and its quantised variants: each
weight is read once for all of them. Who multiplies by it is given, so that it can round, measure, or do neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from copydesk.inference.engine.native.rope_table import rope_table
from copydesk.inference.quantisation.arithmetic import LIMIT
from copydesk.inference.quantisation.modules import EMBEDDING, FINAL_NORM, HEAD, LinearModule, linear_modules
from copydesk.inference.quantisation.scheme import Scheme
from copydesk.inference.quantisation.source import Source

_HEAD_ROWS = 4096  # of the output head at a time, so that scores over a large vocabulary are never all there


class Activations:
    """What goes into modules, [tokens, columns], as it is and as kernels round it at run time."""

    def __init__(self, exact: torch.Tensor, scheme: Scheme) -> None:
        self.exact = exact
        self._scheme = scheme

    @cached_property
    def rounded(self) -> torch.Tensor:
        """In 8 bits with one float32 scale a token, and back."""
        limit = LIMIT[self._scheme]
        scale = self.exact.abs().amax(-1, keepdim=True) / limit
        scaled = (self.exact / scale.where(scale != 0, 1.0)).clamp(-limit, limit)
        if self._scheme is Scheme.INT8:
            return scaled.round() * scale
        return scaled.to(torch.float8_e4m3fn).to(torch.float32) * scale


Product = Callable[[LinearModule, Sequence[Activations]], list[torch.Tensor]]
"""Applies a module to the activations of each stream."""


def plain_product(source: Source) -> Product:
    """The module as it is, for every stream."""

    def multiply(module: LinearModule, inputs: Sequence[Activations]) -> list[torch.Tensor]:
        weight, bias = read_weight(source, module.weight), read_bias(source, module)
        return [F.linear(each.exact, weight, bias) for each in inputs]

    return multiply


def read_weight(source: Source, name: str) -> torch.Tensor:
    """A tensor of the source in float32."""
    return torch.from_numpy(source.tensors[name].floats())


def read_bias(source: Source, module: LinearModule) -> torch.Tensor | None:
    """The bias of a module that has one."""
    return read_weight(source, f"{module.name}.bias") if module.biased else None


class Forward:
    """One pass over `sequences` of tokens, which lie one behind the other in all activations."""

    def __init__(self, source: Source, sequences: Sequence[Sequence[int]], scheme: Scheme) -> None:
        config = source.config
        self._source = source
        self._config = config
        self._scheme = scheme
        self._lengths = [len(sequence) for sequence in sequences]
        self._tokens = [token for sequence in sequences for token in sequence]
        positions = torch.tensor([place for length in self._lengths for place in range(length)])
        cpu = torch.device("cpu")
        table = rope_table(config.rope, config.head_dim, max(self._lengths), torch.float32, cpu)
        self._cos, self._sin = table.cos[positions][:, None], table.sin[positions][:, None]

    def run(self, streams: int, product: Product, progress: Callable[[float], None]) -> list[torch.Tensor]:
        """Return the last hidden state [tokens, hidden] of each stream, normalised for the output head."""
        embedded = self._embedded()
        states = [embedded] * streams
        modules = {(module.layer, module.kind): module for module in linear_modules(self._config)}
        for layer in range(self._config.layers):
            of_layer = {kind: module for (place, kind), module in modules.items() if place == layer}
            states = self._layer(f"model.layers.{layer}", of_layer, states, product)
            progress((layer + 1) / self._config.layers)
        return [entry.exact for entry in self._normalised(states, FINAL_NORM)]

    def _layer(
        self, prefix: str, modules: dict[str, LinearModule], states: list[torch.Tensor], product: Product
    ) -> list[torch.Tensor]:
        inputs = self._normalised(states, f"{prefix}.input_layernorm.weight")
        queries, keys, values = (product(modules[f"self_attn.{name}_proj"], inputs) for name in "qkv")
        attended = [self._attend(*qkv) for qkv in zip(queries, keys, values, strict=True)]
        states = _added(states, product(modules["self_attn.o_proj"], self._activations(attended)))
        inputs = self._normalised(states, f"{prefix}.post_attention_layernorm.weight")
        gates, ups = (product(modules[f"mlp.{name}_proj"], inputs) for name in ("gate", "up"))
        gated = [F.silu(gate) * up for gate, up in zip(gates, ups, strict=True)]
        return _added(states, product(modules["mlp.down_proj"], self._activations(gated)))

    def _normalised(self, states: Sequence[torch.Tensor], name: str) -> list[Activations]:
        weight = read_weight(self._source, name)
        epsilon = self._config.norm_epsilon
        return self._activations([F.rms_norm(state, (self._config.hidden,), weight, epsilon) for state in states])

    def _activations(self, exact: Sequence[torch.Tensor]) -> list[Activations]:
        return [Activations(each, self._scheme) for each in exact]

    def _attend(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        heads = (len(self._tokens), -1, self._config.head_dim)
        parts_of = (self._rotated(queries.view(heads)), self._rotated(keys.view(heads)), values.view(heads))
        places = zip(*(torch.split_with_sizes(part, self._lengths) for part in parts_of), strict=True)
        return torch.cat([_causal(*(part.transpose(0, 1)[None] for part in parts)) for parts in places])

    def _rotated(self, heads: torch.Tensor) -> torch.Tensor:
        return heads * self._cos + heads.roll(heads.shape[-1] // 2, -1) * self._sin

    def _embedded(self) -> torch.Tensor:
        tensor = self._source.tensors[EMBEDDING]
        rows = {token: torch.from_numpy(tensor.rows(token, token + 1))[0] for token in set(self._tokens)}
        return torch.stack([rows[token] for token in self._tokens])


def best_tokens(source: Source, states: torch.Tensor) -> torch.Tensor:
    """The likeliest token after each of the normalised hidden states [rows, hidden]."""
    head = source.tensors[EMBEDDING if source.config.tied else f"{HEAD}.weight"]
    best = torch.full((len(states),), -torch.inf)
    chosen = torch.zeros(len(states), dtype=torch.int64)
    for first in range(0, source.config.vocabulary, _HEAD_ROWS):
        rows = torch.from_numpy(head.rows(first, min(first + _HEAD_ROWS, source.config.vocabulary)))
        scores, places = F.linear(states, rows).max(-1)
        better = scores > best
        best = torch.where(better, scores, best)
        chosen = torch.where(better, places + first, chosen)
    return chosen


def _causal(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Attend within one text, [1, heads, tokens, head_dim] each; return [tokens, heads * head_dim]."""
    attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
    return attended[0].transpose(0, 1).flatten(1)


def _added(states: Sequence[torch.Tensor], changes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [state + change for state, change in zip(states, changes, strict=True)]
