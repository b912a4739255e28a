"""Which sectors of an image a node has, a bit each: 128 bytes for 4 GiB. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def pack(held: Iterable[bool]) -> bytes:
    """Put answers to "is it held" into bits, sector 0 first and lowest."""
    bits = 0
    count = 0
    for count, is_held in enumerate(held, start=1):
        bits |= int(is_held) << (count - 1)
    return bits.to_bytes(-(-count // 8), "little")


def count(bitmaps: Iterable[bytes]) -> int:
    """How many sectors are in one or another of these."""
    union = 0
    for bitmap in bitmaps:
        union |= int.from_bytes(bitmap, "little")
    return union.bit_count()


def holds(bitmap: bytes, number: int) -> bool:
    """Whether the bit of sector `number` is set; beyond the end it is not."""
    at, bit = divmod(number, 8)
    return 0 <= at < len(bitmap) and bool(bitmap[at] >> bit & 1)
