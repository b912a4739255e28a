"""A Llama-family decoder over one step of many requests (Touvron et al., arXiv 2302.13971)."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from copydesk.inference.engine.native.cache import SlotCache
from copydesk.inference.engine.native.config import ModelConfig
from copydesk.inference.engine.native.step import AttentionGroup, Step
from copydesk.inference.engine.native.weights import DecoderWeights, LayerWeights


class Decoder:
    """Weights and their shape; all state is in the cache."""

    def __init__(self, config: ModelConfig, weights: DecoderWeights) -> None:
        self._config = config
        self._weights = weights
        self._rotated = config.heads + config.kv_heads
        self._qkv_shape = (-1, config.heads + 2 * config.kv_heads, config.head_dim)

    def states(self, step: Step, cache: SlotCache) -> torch.Tensor:
        """Run the step's tokens, store their keys and values, return what `scores` takes: [sampled, hidden]."""
        x = F.embedding(step.tokens, self._weights.embedding)
        for index, layer in enumerate(self._weights.layers):
            x = x + self._attention(x, index, layer, step, cache)
            x = x + layer.mlp(x)
        return x if step.sampled is None else x.index_select(0, step.sampled)

    def scores(self, states: torch.Tensor) -> torch.Tensor:
        """Return how likely each token follows, [sampled, vocabulary], in the decoder's own numbers."""
        if not states.shape[0]:
            return states.new_empty(0, self._config.vocabulary)
        return self._weights.head(states)

    def logits(self, step: Step, cache: SlotCache) -> torch.Tensor:
        """Both: [sampled, vocabulary]."""
        return self.scores(self.states(step, cache))

    def _attention(
        self, x: torch.Tensor, index: int, layer: LayerWeights, step: Step, cache: SlotCache
    ) -> torch.Tensor:
        heads = self._config.heads
        qkv = layer.attention_in(x).view(self._qkv_shape)
        _rotate(qkv[:, : self._rotated], step)
        cache.write(index, step.cache_rows, qkv[:, heads:])
        queries, keys, values = qkv[:, :heads], cache.keys[index], cache.values[index]
        attended = [self._attend(queries[g.first : g.last], keys, values, g) for g in step.groups]
        return layer.output(attended[0] if len(attended) == 1 else torch.cat(attended))

    def _attend(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: AttentionGroup
    ) -> torch.Tensor:
        """Attend [tokens, heads, head_dim] to the cache; return [tokens, heads * head_dim].

        The query heads that share a key head count as more queries to it, so that keys are not repeated.
        """
        c = self._config
        if group.sources is not None:
            queries = queries.index_select(0, group.sources)
        queries = queries.reshape(group.rows, group.width, c.kv_heads, c.group, c.head_dim)
        attended = F.scaled_dot_product_attention(
            queries.permute(0, 2, 3, 1, 4).reshape(group.rows, c.kv_heads, -1, c.head_dim),
            keys[group.slots, :, : group.reach],
            values[group.slots, :, : group.reach],
            attn_mask=group.mask,
        )
        attended = attended.view(group.rows, c.kv_heads, c.group, group.width, c.head_dim)
        attended = attended.permute(0, 3, 1, 2, 4).reshape(group.rows * group.width, -1)
        return attended if group.cells is None else attended.index_select(0, group.cells)


def _rotate(x: torch.Tensor, step: Step) -> None:
    """Apply the rotary embedding in place to [tokens, heads, head_dim]; see `RopeTable` for the signs."""
    rolled = x.roll(x.shape[-1] // 2, -1)
    x.mul_(step.cos).addcmul_(rolled, step.sin)
