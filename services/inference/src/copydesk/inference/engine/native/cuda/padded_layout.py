"""A step laid out in a bucket: numbers at places that are the same for every step of that bucket.

Row r of the rectangle that attends is slot r, used or not: the engine gives newcomers the lowest slot that is
free, so that little is wasted, and keys and values are read where they lie. What stands for no token stores its
keys and values in a slot that no request has, and what it finds is never looked at. `pad` is the reference of
`csrc/padded_layout.cpp`.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from copydesk.inference.engine.native.cuda.buckets import Bucket, fit, sizes_of
from copydesk.inference.engine.native.devices import runs_of
from copydesk.inference.engine.native.layout import Run


@dataclass(frozen=True, slots=True)
class Places:
    """Where in a bucket's numbers what lies, and how many numbers there are.

    By token: `tokens`, `positions`, `cache_rows`. By sample, in the order of the step: `sampled`, the token it
    comes after. `cells` says which cell a token is, `sources` which token fills a cell; None in narrow buckets,
    where they are the same.
    """

    tokens: slice
    positions: slice
    cache_rows: slice
    sampled: slice
    cells: slice | None
    sources: slice | None
    size: int


def places_of(bucket: Bucket) -> Places:
    """Return where what lies."""
    lengths = [bucket.tokens, bucket.tokens, bucket.tokens, bucket.samples]
    lengths += [0, 0] if bucket.is_narrow else [bucket.tokens, bucket.cells]
    ends = itertools.accumulate(lengths, initial=0)
    tokens, positions, cache_rows, sampled, cells, sources = itertools.starmap(slice, itertools.pairwise(ends))
    return Places(
        tokens=tokens,
        positions=positions,
        cache_rows=cache_rows,
        sampled=sampled,
        cells=None if bucket.is_narrow else cells,
        sources=None if bucket.is_narrow else sources,
        size=sum(lengths),
    )


def pad(runs: Sequence[Run], bucket: Bucket, context: int, spare_row: int) -> NDArray[np.int64]:
    """Lay out a step that fits; the cache has `context` rows a slot, and `spare_row` belongs to nobody."""
    places = places_of(bucket)
    numbers = np.zeros(places.size, np.int64)
    numbers[places.cache_rows] = spare_row
    sampled: list[int] = []
    first = 0
    for run in runs:
        start, length = (run.slot if bucket.is_narrow else first), len(run.tokens)
        tokens = np.arange(start, start + length)
        positions = np.arange(run.start, run.end)
        numbers[places.tokens][tokens] = run.tokens
        numbers[places.positions][tokens] = positions
        numbers[places.cache_rows][tokens] = run.slot * context + positions
        sampled += tokens[length - run.samples :].tolist()
        if places.cells is not None and places.sources is not None:
            row = np.arange(bucket.width)
            numbers[places.cells][tokens] = run.slot * bucket.width + row[:length]
            numbers[places.sources][run.slot * bucket.width + row] = start + np.minimum(row, length - 1)
        first += length
    numbers[places.sampled][: len(sampled)] = sampled
    return numbers


class Pad(Protocol):
    """Lays a `CdStep` out."""

    def __call__(self, step: Any, numbers: NDArray[np.int64]) -> int | None:
        """Write the step's numbers, and return which bucket they are for; None: it fits none of them."""
        ...


class PythonPad:
    """The reference: several times as slow, for comparison."""

    def __init__(self, buckets: Sequence[Bucket], context: int, spare_row: int) -> None:
        self._buckets = buckets
        self._context = context
        self._spare_row = spare_row

    def __call__(self, step: Any, numbers: NDArray[np.int64]) -> int | None:
        """See `Pad`."""
        runs = runs_of(step)
        index = fit(self._buckets, sizes_of(runs))
        if index is None:
            return None
        padded = pad(runs, self._buckets[index], self._context, self._spare_row)
        numbers[: len(padded)] = padded
        return index


class CompiledPad:
    """One call into the compiled library."""

    def __init__(self, library: ctypes.CDLL, buckets: Sequence[Bucket], context: int, spare_row: int) -> None:
        self._function = library.cd_lay_out_padded
        self._function.restype = ctypes.c_int32
        self._function.argtypes = (
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32),
            *(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p),
        )
        self._buckets = np.array([astuple(bucket) for bucket in buckets], np.int32)
        self._context = context
        self._spare_row = spare_row

    def __call__(self, step: Any, numbers: NDArray[np.int64]) -> int | None:
        """See `Pad`."""
        buckets = self._buckets
        index: int = self._function(
            ctypes.byref(step),
            buckets.ctypes.data,
            len(buckets),
            self._context,
            self._spare_row,
            numbers.ctypes.data,
        )
        return index if index >= 0 else None
