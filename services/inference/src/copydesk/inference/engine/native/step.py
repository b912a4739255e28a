"""The tensors of one step, made once from its layout and shared by all layers.

A layout made in Python is lists, which become tensors one by one; one that the compiled library made is an array,
of which tensors are views.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from copydesk.inference.engine.native.cache import SlotCache
from copydesk.inference.engine.native.flat_layout import FlatGroup, FlatLayout
from copydesk.inference.engine.native.layout import Group, Layout
from copydesk.inference.engine.native.rope_table import RopeTable


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """A `Group` as tensors; `mask` is added to the scores [rows, kv_heads, query_group * width, reach]."""

    first: int
    last: int
    rows: int
    width: int
    reach: int
    slots: slice | torch.Tensor
    mask: torch.Tensor
    cells: torch.Tensor | None
    sources: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Step:
    """What a decoder needs beside its weights and the cache.

    `tokens` is [tokens]; `cos` and `sin` are [tokens, 1, head_dim]; `cache_rows` says where keys and values go;
    `sampled` lists the tokens whose successors are wanted, None for all.
    """

    tokens: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    cache_rows: torch.Tensor
    groups: tuple[AttentionGroup, ...]
    sampled: torch.Tensor | None


def build_step(layout: Layout, cache: SlotCache, rope: RopeTable, query_group: int) -> Step:
    """Turn lists into tensors; `query_group` is how many query heads share a key head."""
    device = rope.cos.device
    tokens: list[int] = []
    slots: list[int] = []
    positions: list[int] = []
    for run in layout.runs:
        tokens += run.tokens
        slots += [run.slot] * len(run.tokens)
        positions += range(run.start, run.end)
    flat = torch.tensor([tokens, slots, positions], device=device)
    everything = len(layout.sampled) == len(tokens)
    return Step(
        tokens=flat[0],
        cos=rope.cos[flat[2]][:, None],
        sin=rope.sin[flat[2]][:, None],
        cache_rows=cache.rows(flat[1], flat[2]),
        groups=tuple(_attention_group(group, rope.cos, query_group) for group in layout.groups),
        sampled=None if everything else torch.tensor(layout.sampled, dtype=torch.int64, device=device),
    )


def _attention_group(group: Group, like: torch.Tensor, query_group: int) -> AttentionGroup:
    rows = len(group.slots)
    low, high = group.slots[0], group.slots[-1] + 1
    positions = torch.tensor(group.positions, device=like.device)
    return AttentionGroup(
        first=group.first,
        last=group.last,
        rows=rows,
        width=group.width,
        reach=group.reach,
        slots=slice(low, high) if group.contiguous else torch.tensor(group.slots, device=like.device),
        mask=mask(positions, group.width, group.reach, like, query_group),
        cells=None if group.cells is None else torch.tensor(group.cells, device=like.device),
        sources=None if group.sources is None else torch.tensor(group.sources, device=like.device),
    )


def view_step(layout: FlatLayout, numbers: torch.Tensor, rope: RopeTable, query_group: int) -> Step:
    """The same from the layout's numbers, which lie as a tensor where the decoder computes."""
    positions = numbers[layout.positions]
    everything = layout.sampled.stop - layout.sampled.start == len(positions)
    return Step(
        tokens=numbers[layout.tokens],
        cos=rope.cos[positions][:, None],
        sin=rope.sin[positions][:, None],
        cache_rows=numbers[layout.cache_rows],
        groups=tuple(_view_group(layout, group, numbers, rope.cos, query_group) for group in layout.groups),
        sampled=None if everything else numbers[layout.sampled],
    )


def _view_group(
    layout: FlatLayout, group: FlatGroup, numbers: torch.Tensor, like: torch.Tensor, query_group: int
) -> AttentionGroup:
    low = int(layout.numbers[group.slots.start])
    return AttentionGroup(
        first=group.first,
        last=group.last,
        rows=group.rows,
        width=group.width,
        reach=group.reach,
        slots=slice(low, low + group.rows) if group.contiguous else numbers[group.slots],
        mask=mask(numbers[group.positions], group.width, group.reach, like, query_group),
        cells=None if group.cells is None else numbers[group.cells],
        sources=None if group.sources is None else numbers[group.sources],
    )


def mask(positions: torch.Tensor, width: int, reach: int, like: torch.Tensor, query_group: int) -> torch.Tensor:
    """Zero where a cell may look, minus infinity elsewhere; repeated for the query heads of a group."""
    hidden = torch.arange(reach, device=like.device) > positions.view(-1, 1, 1, width, 1)
    mask = torch.zeros_like(hidden, dtype=like.dtype).masked_fill_(hidden, float("-inf"))
    return mask.expand(-1, 1, query_group, -1, -1).reshape(-1, 1, query_group * width, reach)
