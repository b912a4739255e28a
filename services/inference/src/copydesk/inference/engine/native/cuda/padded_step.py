"""The tensors of a padded step, made where it is computed: of numbers that lie at places fixed by its bucket."""

from __future__ import annotations

import torch

from copydesk.inference.engine.native.cuda.buckets import Bucket
from copydesk.inference.engine.native.cuda.padded_layout import Places
from copydesk.inference.engine.native.rope_table import RopeTable
from copydesk.inference.engine.native.step import AttentionGroup, Step, mask


def padded_step(
    bucket: Bucket,
    places: Places,
    numbers: torch.Tensor,
    chosen: torch.Tensor,
    rope: RopeTable,
    query_group: int,
) -> Step:
    """One rectangle over slots 0 to `bucket.rows`; all that changes from step to step is read from `numbers`.

    `chosen` are the tokens that the step before this one chose: see `known_tokens`.
    """
    positions = numbers[places.positions]
    cells = None if places.cells is None else numbers[places.cells]
    sources = None if places.sources is None else numbers[places.sources]
    last_seen = positions if sources is None else positions.index_select(0, sources)
    group = AttentionGroup(
        first=0,
        last=bucket.tokens,
        rows=bucket.rows,
        width=bucket.width,
        reach=bucket.reach,
        slots=slice(0, bucket.rows),
        mask=mask(last_seen, bucket.width, bucket.reach, rope.cos, query_group),
        cells=cells,
        sources=sources,
    )
    return Step(
        tokens=known_tokens(numbers[places.tokens], chosen),
        cos=rope.cos.index_select(0, positions)[:, None],
        sin=rope.sin.index_select(0, positions)[:, None],
        cache_rows=numbers[places.cache_rows],
        groups=(group,),
        sampled=numbers[places.sampled],
    )


def known_tokens(tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Put in place of -(1 + i) what was chosen at sample i of the step before: the host need not know it yet."""
    from_before = chosen.index_select(0, (-1 - tokens).clamp_(min=0))
    return torch.where(tokens < 0, from_before, tokens)
