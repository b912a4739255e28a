"""The keys and values of every running request: one fixed slot of `context` positions each."""

from __future__ import annotations

import math

import numpy as np
import torch

from copydesk.inference.engine.native.config import ModelConfig
from copydesk.inference.engine.native.errors import InvalidOptionError


class SlotCache:
    """A tensor [layers, slots, context, 2, kv_heads, head_dim]: keys, then values, written token by token.

    All that a token leaves in a layer lies together, so that storing it touches one page of memory, not many.
    Never cleared: what a slot's last tenant left behind lies beyond what the mask of the next one lets through.
    Zeros to begin with, because a masked position still takes part in a product and must be finite.

    Raises:
        InvalidOptionError: there is no memory for so many slots.
    """

    def __init__(
        self, config: ModelConfig, slots: int, context: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._context = context
        shape = (config.layers, slots, context, 2, config.kv_heads, config.head_dim)
        try:
            cache = _zeros(shape, dtype, device)
        except (MemoryError, torch.OutOfMemoryError) as error:
            size = f"{math.prod(shape) * dtype.itemsize / 2**30:.1f} GiB"
            raise InvalidOptionError(
                "slots", slots, f"fewer: with {context} tokens each their cache takes {size}"
            ) from error
        # By layer, each [slots, kv_heads, context, head_dim].
        self.keys = tuple(layer[:, :, 0].transpose(1, 2) for layer in cache)
        self.values = tuple(layer[:, :, 1].transpose(1, 2) for layer in cache)
        self._rows = tuple(layer.view(slots * context, -1) for layer in cache)

    def rows(self, slots: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Where the keys and values of tokens go, for `write`; all are [tokens]."""
        return slots * self._context + positions

    def write(self, layer: int, rows: torch.Tensor, keys_values: torch.Tensor) -> None:
        """Store [tokens, 2 * kv_heads, head_dim], keys before values, at `rows`."""
        self._rows[layer].index_copy_(0, rows, keys_values.reshape(rows.shape[0], -1))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Like `torch.zeros`, but in main memory the pages are taken only when they are first written."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(shape)
