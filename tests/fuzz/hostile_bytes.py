"""Bytes that are nearly right: what is right, damaged, repeated, cut, and told to be longer than it is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st

_PIECES = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from(
        [b"\0", b"\xff", b"\xff\xff\xff\xff", b"\r\n", b"\n", b'"', b"{", b"[" * 64, b"\xdd\xff\xff\xff\xff"]
    ),
)


def damaged(whole: st.SearchStrategy[bytes], most: int = 4) -> st.SearchStrategy[bytes]:
    """Bytes of `whole` to which at most `most` things are done."""
    change = st.tuples(st.sampled_from(["insert", "replace", "cut", "repeat"]), st.integers(0, 1 << 16), _PIECES)
    return st.builds(_changed, whole, st.lists(change, max_size=most))


def _changed(data: bytes, changes: Sequence[tuple[str, int, bytes]]) -> bytes:
    for how, where, piece in changes:
        at = where % (len(data) + 1)
        if how == "insert":
            data = data[:at] + piece + data[at:]
        elif how == "replace":
            data = data[:at] + piece + data[at + len(piece) :]
        elif how == "cut":
            data = data[:at]
        else:
            data += data[at : at + 256]
    return data


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Cut `data` at these places, each taken modulo its length."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]
