"""The header of a safetensors file, read strictly and without the tensors behind it.

Eight bytes of length, a JSON header, then the tensors' bytes, which the header describes without gaps or overlaps
(https://github.com/huggingface/safetensors#format). Whoever made the file is not trusted: nothing is read that is
longer than it may be, and no number is believed before it was compared with the file's size.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from copydesk.inference.engine.native.files import LONGEST_HEADER

ITEM_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
_MOST_SIZES = 64
_MOST_DIGITS = 40
"""Of a shape, and of a number: else to read what is hostile, and to multiply it, could take a year."""
_MAGIC = {
    b"PK\x03\x04": "an archive as torch.save writes it, which holds pickled data",
    b"\x80\x02": "pickled data",
    b"\x80\x03": "pickled data",
    b"\x80\x04": "pickled data",
    b"\x80\x05": "pickled data",
    b"GGUF": "a GGUF file",
    b"\x7fELF": "a program",
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as a header describes it: `first` and `last` are offsets from the header's end."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    first: int
    last: int
    file: str

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


class HeaderError(Exception):
    """What is wrong with a file; the text says what was found and what was expected."""


class _TwiceError(ValueError):
    pass


def read_header(path: Path) -> list[Stored]:
    """Return the tensors of a file in the order in which they lie there; raises `HeaderError`, `OSError`."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        start = file.read(32)
        length = _length(start, size)
        file.seek(8)
        header = file.read(length)
    tensors = sorted(_tensors(_decoded(header), path.name), key=lambda one: (one.first, one.last))
    _check_places(tensors, size - 8 - length)
    return tensors


def _length(start: bytes, size: int) -> int:
    for magic, what in _MAGIC.items():
        if start.startswith(magic):
            raise HeaderError(f"it is no safetensors file but {what}")
    if len(start) < 8:
        raise HeaderError(f"it has {size} bytes, too few for a safetensors file")
    length = int.from_bytes(start[:8], "little")
    if length > LONGEST_HEADER:
        raise HeaderError(f"its header is said to have {length:,} bytes; expected {LONGEST_HEADER:,} at the most")
    if length > size - 8:
        raise HeaderError(f"it is cut short: its header has {length:,} bytes, and {size - 8:,} are there")
    return length


def _decoded(header: bytes) -> dict[str, Any]:
    try:
        content = json.loads(header.decode(), object_pairs_hook=_once, parse_int=_number)
    except _TwiceError as error:
        raise HeaderError(f"its header has {error} twice") from error
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"its header is no JSON ({error})") from error
    if not isinstance(content, dict):
        raise HeaderError("its header is no JSON object")
    content.pop("__metadata__", None)
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise _TwiceError(repr(twice))
    return content


def _number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _tensors(content: dict[str, Any], file: str) -> Iterator[Stored]:
    for name, entry in content.items():
        if not isinstance(entry, dict):
            raise HeaderError(f"tensor {name} is described by {_shown(entry)}; expected an object")
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not isinstance(dtype, str) or dtype not in ITEM_BITS:
            raise HeaderError(f"tensor {name} has the type {_shown(dtype)}, which is none of the format's")
        if not _are_sizes(shape):
            raise HeaderError(f"tensor {name} has the shape {_shown(shape)}; expected whole numbers from 0 on")
        if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise HeaderError(f"tensor {name} has the data_offsets {_shown(offsets)}; expected [first, last]")
        tensor = Stored(name, dtype, tuple(shape), offsets[0], offsets[1], file)
        needed = tensor.numbers * ITEM_BITS[dtype]
        if needed != 8 * (tensor.last - tensor.first):
            found = tensor.last - tensor.first
            raise HeaderError(
                f"tensor {name} of shape {list(tensor.shape)} in {dtype} takes {_whole(needed)} bytes, "
                f"and has {found:,}"
            )
        yield tensor


def _check_places(tensors: Iterable[Stored], size: int) -> None:
    """Make sure that tensors lie one behind the other and fill the file."""
    end, before = 0, ""
    for tensor in tensors:
        if tensor.first < end:
            raise HeaderError(f"tensors {before} and {tensor.name} overlap")
        if tensor.first > end:
            raise HeaderError(f"{tensor.first - end:,} bytes before tensor {tensor.name} belong to none")
        end, before = tensor.last, tensor.name
    if end > size:
        raise HeaderError(f"it is cut short: its tensors have {end:,} bytes, and {size:,} are there")
    if end < size:
        raise HeaderError(f"{size - end:,} bytes at its end belong to no tensor")


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    if not isinstance(value, list) or len(value) > _MOST_SIZES:
        return False
    return all(type(one) is int and one >= 0 for one in value)


def _whole(bits: int) -> str:
    number = -(-bits // 8)
    return f"{number:,}" if number < 1 << 70 else "far too many"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
