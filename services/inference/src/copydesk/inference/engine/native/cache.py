"""The keys and values of every running request: one fixed slot of `context` positions each."""

from __future__ import annotations

import torch
from copydesk.inference.engine.native.config import ModelConfig


class SlotCache:
    """A tensor [layers, 2, slots, kv_heads, context, head_dim], written token by token.

    Never cleared: what a slot's last tenant left behind lies beyond what the mask of the next one lets through.
    Zeros to begin with, because a masked position still takes part in a product and must be finite.
    """

    def __init__(
        self, config: ModelConfig, slots: int, context: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (config.layers, 2, slots, config.kv_heads, context, config.head_dim)
        cache = torch.zeros(shape, dtype=dtype, device=device)
        self.keys = tuple(layer[0] for layer in cache)
        self.values = tuple(layer[1] for layer in cache)
        self._rows = tuple(layer.view(-1, config.head_dim) for layer in cache)
        # Row numbers, inside a layer, of the heads of position 0 of slot 0: the keys', then the values'.
        heads = torch.arange(config.kv_heads, device=device) * context
        self._heads = torch.cat([heads, heads + slots * config.kv_heads * context])
        self._slot_stride = config.kv_heads * context

    def rows(self, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Where the keys and values of tokens go, for `write`; both arguments are [tokens]."""
        return ((slots * self._slot_stride + positions)[:, None] + self._heads).view(-1)

    def write(self, layer: int, rows: torch.Tensor, keys_values: torch.Tensor) -> None:
        """Store [tokens, 2 * kv_heads, head_dim], keys before values, at `rows`."""
        self._rows[layer].index_copy_(0, rows, keys_values.reshape(rows.shape[0], -1))
