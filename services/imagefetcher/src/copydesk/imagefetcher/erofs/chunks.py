"""Which chunk size a file takes, and the table of its chunks: as few entries as its extents allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from copydesk.imagefetcher.erofs.layout import (
    BLOCK,
    BLOCK_BITS,
    CHUNK_BITS_MASK,
    CHUNK_FORMAT_INDEXES,
    CHUNK_INDEX,
    HOLE,
)
from copydesk.imagefetcher.tree import Extent

DEVICE = 1
"""The data device is the first, and only, entry of the device table."""


def block_count(size: int) -> int:
    """How many blocks a file of `size` bytes has."""
    return -(-size // BLOCK)


def chunk_bits(size: int, extents: Sequence[Extent]) -> int:
    """The largest chunk (in bits beyond a block's) that no extent's border lies within.

    One extent that is the whole file takes one chunk, however long.
    """
    blocks = block_count(size)
    borders = 0
    for extent in extents:
        borders |= extent.file_block
        end = extent.file_block + extent.blocks
        if end < blocks:
            borders |= end
    whole = max(blocks - 1, 0).bit_length()
    bits = whole if borders == 0 else min(whole, (borders & -borders).bit_length() - 1)
    return min(bits, CHUNK_BITS_MASK)


def chunk_format(bits: int) -> int:
    """What an inode says of its chunks."""
    return bits | CHUNK_FORMAT_INDEXES


def table_length(size: int, bits: int) -> int:
    """The length of a file's chunk table, in bytes."""
    return CHUNK_INDEX.size * -(-block_count(size) // (1 << bits))


def pack_chunks(size: int, bits: int, extents: Sequence[Extent]) -> bytes:
    """The chunk table of a file; what no extent covers is a hole, which reads as zeros."""
    step = 1 << bits
    table = bytearray(CHUNK_INDEX.pack(0, 0, HOLE) * -(-block_count(size) // step))
    for extent in extents:
        for offset in range(0, extent.blocks, step):
            number = (extent.file_block + offset) >> bits
            CHUNK_INDEX.pack_into(table, number * CHUNK_INDEX.size, 0, DEVICE, extent.device_block + offset)
    return bytes(table)


def unpack_chunks(size: int, format_: int, table: bytes) -> Iterator[Extent]:
    """The extents of a file, joined where they follow one another; raises ValueError for a format unknown here."""
    if not format_ & CHUNK_FORMAT_INDEXES or format_ & ~(CHUNK_FORMAT_INDEXES | CHUNK_BITS_MASK):
        raise ValueError(f"chunk format {format_:#x} is not used in images")
    bits = format_ & CHUNK_BITS_MASK
    blocks = block_count(size)
    current: Extent | None = None
    for number in range(len(table) // CHUNK_INDEX.size):
        _, device, start = CHUNK_INDEX.unpack_from(table, number * CHUNK_INDEX.size)
        if start == HOLE:
            continue
        if device != DEVICE:
            raise ValueError(f"a chunk lies on device {device}")
        first = number << bits
        count = min(1 << bits, blocks - first)
        if current and _follows(current, first, start):
            current = Extent(current.file_block, current.blocks + count, current.device_block)
            continue
        if current:
            yield current
        current = Extent(first, count, start)
    if current:
        yield current


def _follows(extent: Extent, first: int, start: int) -> bool:
    return extent.file_block + extent.blocks == first and extent.device_block + extent.blocks == start


def byte_bits(format_: int) -> int:
    """The chunk size of a format, in bits of bytes."""
    return BLOCK_BITS + (format_ & CHUNK_BITS_MASK)
