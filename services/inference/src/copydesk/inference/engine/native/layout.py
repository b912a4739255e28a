"""How the runs of one step are laid out: pure lists of numbers, no tensors.

All tokens of a step form one flat sequence, over which every linear map goes at once. Attention alone needs
rectangles: runs of similar length form a group [rows, width], each row a slot of the cache and each cell a
query token. A group over neighbouring slots reads the cache in place; only scattered slots are gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

_REACH_STEP = 32  # attention reads a multiple of this many positions: few distinct shapes, little waste
_SHORT = 3  # runs of up to 2 ** 3 tokens, drafts and single ones: padding them is cheaper than attending apart
_SPAN_WASTE = 1.5  # reading idle slots in between is cheaper than gathering, up to this ratio


@dataclass(frozen=True, slots=True)
class Run:
    """New tokens of one request: they go to `slot` from position `start` on.

    Wanted are the tokens that follow each of the last `samples` of them. Of these all but the first are a draft:
    known only if the model chooses them too. With `scores`, wanted are the model's scores there instead.
    """

    request_id: int
    slot: int
    start: int
    tokens: Sequence[int]
    samples: int
    scores: bool = False

    @property
    def end(self) -> int:
        """The position after the last token."""
        return self.start + len(self.tokens)

    @property
    def drafted(self) -> Sequence[int]:
        """The tokens that are a draft."""
        return self.tokens[len(self.tokens) + 1 - self.samples :] if self.samples else ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step found, by slot: the likeliest tokens, or for runs with `scores` those, [samples, vocabulary]."""

    tokens: dict[int, list[int]]
    scores: dict[int, NDArray[np.float32]] = field(default_factory=dict)

    @classmethod
    def split(cls, runs: Iterable[Run], chosen: NDArray[np.int32], scores: NDArray[np.float32]) -> StepResult:
        """Divide what was found for all runs, in their order, among them."""
        result = cls({})
        sample = row = 0
        for run in runs:
            if run.scores:
                result.scores[run.slot] = scores[row : row + run.samples]
                row += run.samples
            elif run.samples:
                result.tokens[run.slot] = chosen[sample : sample + run.samples].tolist()
            sample += run.samples
        return result


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that attend together, over flat tokens `first` to `last` (exclusive).

    `slots` names the rows' slots; `contiguous` says that they follow one another. `reach` is how many positions of
    them are read, `positions` the last one that each cell sees. `cells` says, for each flat token of the group,
    which cell it is, and `sources`, for each cell, which token fills it; both are None when they are the same.
    """

    first: int
    last: int
    width: int
    reach: int
    slots: tuple[int, ...]
    contiguous: bool
    positions: list[int]
    cells: list[int] | None
    sources: list[int] | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The runs in flat order, their groups, and which flat tokens are sampled after."""

    runs: tuple[Run, ...]
    groups: tuple[Group, ...]
    sampled: list[int]


def lay_out(runs: Iterable[Run], context: int) -> Layout:
    """Order runs by length and slot, and group them: short ones, then by powers of two."""
    ordered = sorted(runs, key=lambda run: (_bucket(run), run.slot))
    groups: list[Group] = []
    first = 0
    for _, bucket in groupby(ordered, key=_bucket):
        members = list(bucket)
        groups.append(_group(members, first, context))
        first = groups[-1].last
    return Layout(tuple(ordered), tuple(groups), _sampled(ordered))


def _bucket(run: Run) -> int:
    return max(_SHORT, (len(run.tokens) - 1).bit_length())


def _sampled(ordered: Sequence[Run]) -> list[int]:
    end = 0
    sampled: list[int] = []
    for run in ordered:
        end += len(run.tokens)
        sampled += range(end - run.samples, end)
    return sampled


def _group(runs: Sequence[Run], first: int, context: int) -> Group:
    low, high = runs[0].slot, runs[-1].slot + 1
    contiguous = high - low <= _SPAN_WASTE * len(runs)
    slots = tuple(range(low, high)) if contiguous else tuple(run.slot for run in runs)
    width = max(len(run.tokens) for run in runs)
    reach = min(context, -(-max(run.end for run in runs) // _REACH_STEP) * _REACH_STEP)
    positions, sources, cells = _cells(runs, slots, width)
    exact = len(cells) == len(sources)
    return Group(
        first=first,
        last=first + len(cells),
        width=width,
        reach=reach,
        slots=slots,
        contiguous=contiguous,
        positions=positions,
        cells=None if exact else cells,
        sources=None if exact else sources,
    )


def _cells(runs: Sequence[Run], slots: Sequence[int], width: int) -> tuple[list[int], list[int], list[int]]:
    """Fill the rectangle row by row; cells that stand for no token repeat one, so that all stay finite."""
    by_slot = {run.slot: run for run in runs}
    positions: list[int] = []
    sources: list[int] = []
    cells: list[int] = []
    for slot in slots:
        run = by_slot.get(slot)
        if run is None:
            positions += [0] * width
            sources += [0] * width
            continue
        length, token = len(run.tokens), len(cells)
        padding = width - length
        cells += range(len(sources), len(sources) + length)
        positions += [*range(run.start, run.end), *[run.end - 1] * padding]
        sources += [*range(token, token + length), *[token + length - 1] * padding]
    return positions, sources, cells
