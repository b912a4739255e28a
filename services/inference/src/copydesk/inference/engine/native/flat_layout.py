"""The layout of a step as the compiled library makes it: one array of numbers, and where in it what lies.

It holds what `layout.lay_out` decides, and the numbers that the tensors of a step are made of. No tensors here.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GROUP = 10  # numbers; LayoutGroup of csrc/layout.hpp


@dataclass(frozen=True, slots=True)
class FlatGroup:
    """A `layout.Group` of `rows` slots; its lists are slices of the layout's numbers.

    `cells` and `sources` are None when a token and its cell are the same.
    """

    first: int
    last: int
    rows: int
    width: int
    reach: int
    contiguous: bool
    slots: slice
    positions: slice
    cells: slice | None
    sources: slice | None


@dataclass(frozen=True, slots=True)
class FlatLayout:
    """Slices of `numbers`, which are valid until the next step is laid out.

    By token: `tokens`, `positions`, and `cache_rows`, its row in a cache [slots * context]. By sample: `sampled`,
    the token it comes after; `places` and `scored` are in the order of the step's runs, and say which of the
    samples is theirs: all of them, and those of runs with scores. `order` says, for each run of the layout, which
    of the step's it is.
    """

    numbers: NDArray[np.int64]
    tokens: slice
    positions: slice
    cache_rows: slice
    sampled: slice
    places: slice
    scored: slice
    order: slice
    groups: tuple[FlatGroup, ...]


class LayoutRoom:
    """Lays out steps for sequences of up to `context` tokens, each in the same room as the one before."""

    def __init__(self, library: ctypes.CDLL, context: int) -> None:
        self._function = library.cd_lay_out
        self._function.restype = ctypes.c_int64
        self._function.argtypes = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)
        self._context = context
        self._room = np.empty(0, np.int64)

    def lay_out(self, step: Any) -> FlatLayout:
        """Lay out a `CdStep`; whoever reads the numbers of the last one must be done with them."""
        used = self._write(step)
        if used > len(self._room):
            self._room = np.empty(2 * used, np.int64)
            used = self._write(step)
        return _read(self._room[:used], step)

    def _write(self, step: Any) -> int:
        room = self._room
        used: int = self._function(ctypes.byref(step), self._context, room.ctypes.data, len(room))
        return used


def _read(numbers: NDArray[np.int64], step: Any) -> FlatLayout:
    tokens = 1 + _GROUP * int(numbers[0])
    positions = tokens + step.tokens
    cache_rows = positions + step.tokens
    sampled = cache_rows + step.tokens
    places = sampled + step.samples
    scored = places + step.samples
    order = scored + step.scored
    return FlatLayout(
        numbers=numbers,
        tokens=slice(tokens, positions),
        positions=slice(positions, cache_rows),
        cache_rows=slice(cache_rows, sampled),
        sampled=slice(sampled, places),
        places=slice(places, scored),
        scored=slice(scored, order),
        order=slice(order, order + step.runs),
        groups=tuple(_group(*group) for group in numbers[1:tokens].reshape(-1, _GROUP).tolist()),
    )


def _group(
    first: int,
    last: int,
    rows: int,
    width: int,
    reach: int,
    contiguous: int,
    slots: int,
    positions: int,
    cells: int,
    sources: int,
) -> FlatGroup:
    exact = cells < 0
    return FlatGroup(
        first=first,
        last=last,
        rows=rows,
        width=width,
        reach=reach,
        contiguous=bool(contiguous),
        slots=slice(slots, slots + rows),
        positions=slice(positions, positions + rows * width),
        cells=None if exact else slice(cells, cells + last - first),
        sources=None if exact else slice(sources, sources + rows * width),
    )
