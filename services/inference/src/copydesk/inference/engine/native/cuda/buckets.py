"""Which sizes of steps are prepared: a graph of a GPU runs exactly what it was captured with, addresses and sizes.

A step fits a bucket that is at least as large in every respect; what it leaves empty is padding. Two families: in
the *narrow* one every run is a single token and token i is slot i's, so that nothing needs to be moved for
attention; the *wide* one has runs of any length up to its width, flat for the linear maps and in a rectangle for
attention. Most of a small model's step on a GPU is the launch of its kernels, whatever they compute, so that wide
buckets can be coarse: twice as many tokens are hardly slower, nor are a few cells more of short runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from copydesk.inference.engine.native.layout import Run

_SHORTEST_REACH = 128
_SHORT_WIDTHS = (8,)  # tokens in a run: what short drafts share
_LONG_WIDTHS = 32  # and the least that prompts share; from here on it doubles, since 64 rows as wide cost time
_FEW_TOKENS = 64  # fewer take as long: a step then reads weights more than it computes
_TOKEN_STEP = 128  # beyond twice as many, where tokens cost what they compute
_MOST_LOOKS = 1 << 22  # cells times positions: with four query heads a key head the mask takes 32 MB
_LOOKS_A_TOKEN = 1024  # about what a token costs in the linear maps, counted in cells times positions of attention


@dataclass(frozen=True, slots=True)
class Bucket:
    """The most a step may have: `tokens`, `rows` (slots, counted from 0), `width` (tokens of a run), `reach`
    (positions), `samples`.
    """

    tokens: int
    rows: int
    width: int
    reach: int
    samples: int

    @property
    def is_narrow(self) -> bool:
        """Whether token i is slot i's."""
        return self.width == 1

    @property
    def cells(self) -> int:
        """Query places of the rectangle that attends."""
        return self.rows * self.width

    @property
    def cost(self) -> float:
        """What a step of this size computes, in tokens: to choose between those that fit."""
        return self.tokens + self.cells * self.reach / _LOOKS_A_TOKEN

    def holds(self, sizes: Bucket) -> bool:
        """Whether a step of these sizes fits."""
        return (
            sizes.tokens <= self.tokens
            and sizes.rows <= self.rows
            and sizes.width <= self.width
            and sizes.reach <= self.reach
            and sizes.samples <= self.samples
        )


@dataclass(frozen=True, slots=True)
class Extent:
    """What an engine's steps can come to: see `NativeOptions`."""

    slots: int
    context: int
    prefill_tokens: int
    draft_tokens: int

    @property
    def longest_run(self) -> int:
        """Tokens: a whole portion of a prompt, with all drafts behind it."""
        return min(self.context, self.prefill_tokens + self.draft_tokens)

    @property
    def tokens(self) -> int:
        """Most tokens of a step: one for everybody, a portion of prompts, and drafts in what is left."""
        return self.prefill_tokens + max(self.slots, self.draft_tokens)

    @property
    def samples(self) -> int:
        """Most samples of a step: one for everybody, and drafts."""
        return self.slots + self.draft_tokens


def sizes_of(runs: Iterable[Run]) -> Bucket:
    """The smallest bucket that a step would fit into."""
    runs = list(runs)
    return Bucket(
        tokens=sum(len(run.tokens) for run in runs),
        rows=max((run.slot + 1 for run in runs), default=0),
        width=max((len(run.tokens) for run in runs), default=0),
        reach=max((run.end for run in runs), default=0),
        samples=sum(run.samples for run in runs),
    )


def fit(buckets: Sequence[Bucket], sizes: Bucket) -> int | None:
    """The first bucket that holds a step of these sizes: a narrow one if there is one, and the cheapest."""
    return next((index for index, bucket in enumerate(buckets) if bucket.holds(sizes)), None)


def buckets_for(extent: Extent, most: int) -> tuple[Bucket, ...]:
    """At most `most` buckets: all narrow ones, then wide ones, short reaches first; of both, the cheapest first.

    What fits none of them is left to be run without a graph: it is large enough for that to matter less.
    """
    kept: list[Bucket] = []
    for family in (_narrow(extent), _wide(extent)):
        kept += sorted(family, key=lambda bucket: (bucket.reach, bucket.cost))
    del kept[most:]
    return tuple(sorted(kept, key=lambda bucket: (not bucket.is_narrow, bucket.cost)))


def _narrow(extent: Extent) -> list[Bucket]:
    return [Bucket(rows, rows, 1, reach, rows) for rows in narrow_rows(extent.slots) for reach in reaches(extent)]


def _wide(extent: Extent) -> list[Bucket]:
    found: list[Bucket] = []
    axes = itertools.product(
        _with_last(_token_counts(extent.tokens)), _with_last(wide_rows(extent.slots)), _with_last(widths(extent))
    )
    for (fewer, tokens), (_, rows), (narrower, width) in axes:
        if tokens <= narrower or fewer >= rows * width:
            continue  # a step of so many tokens has a smaller bucket
        samples = min(tokens, extent.samples)
        every = (Bucket(tokens, rows, width, reach, samples) for reach in reaches(extent))
        found += [bucket for bucket in every if bucket.cells * bucket.reach <= _MOST_LOOKS]
    return found


def narrow_rows(slots: int) -> list[int]:
    """1, 2, 4, then every 8 to 64, then every 16."""
    return [*(rows for rows in (1, 2, 4, *range(8, 64, 8), *range(64, slots, 16)) if rows < slots), slots]


def wide_rows(slots: int) -> list[int]:
    """1, 8, 32, then every 64."""
    return [*(rows for rows in (1, 8, 32, *range(64, slots, 64)) if rows < slots), slots]


def widths(extent: Extent) -> list[int]:
    """8, 32, 64, 128, and so on, up to the longest run that there can be."""
    longest = extent.longest_run
    short = [width for width in _SHORT_WIDTHS if width < longest]
    return [*short, *_doubled(_LONG_WIDTHS, longest)] if longest > 1 else []


def reaches(extent: Extent) -> list[int]:
    """128, 256, 512, and so on, up to the context."""
    return _doubled(_SHORTEST_REACH, extent.context)


def _token_counts(most: int) -> list[int]:
    counts = _doubled(_FEW_TOKENS, min(most, 2 * _TOKEN_STEP))
    return [*counts, *(count for count in range(3 * _TOKEN_STEP, most + _TOKEN_STEP, _TOKEN_STEP))]


def _doubled(first: int, most: int) -> list[int]:
    numbers = [first]
    while numbers[-1] < most:
        numbers.append(numbers[-1] * 2)
    return [*numbers[:-1], most]


def _with_last(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Each with the one before it."""
    return list(zip([0, *numbers], numbers, strict=False))
