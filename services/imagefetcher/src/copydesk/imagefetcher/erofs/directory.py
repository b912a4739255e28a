"""Directories as EROFS keeps them: blocks of sorted entries, each block with its names at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from copydesk.imagefetcher.erofs.layout import BLOCK, DIRENT


class Entry(NamedTuple):
    """A name in a directory, with the inode that it names and the number of its type."""

    name: bytes
    nid: int
    file_type: int


def directory_size(names: Sequence[bytes]) -> int:
    """How many bytes a directory of these sorted names takes ('.' and '..' among them)."""
    lengths = [sum(DIRENT.size + len(name) for name in block) for block in _blocks(names)]
    return (len(lengths) - 1) * BLOCK + lengths[-1]


def pack_directory(entries: Sequence[Entry]) -> bytes:
    """The directory's bytes, as many as `directory_size` says; the entries are sorted by name."""
    packed = bytearray()
    at = 0
    for names in _blocks([entry.name for entry in entries]):
        packed.extend(bytes(-len(packed) % BLOCK))
        packed.extend(_pack_block(entries[at : at + len(names)]))
        at += len(names)
    return bytes(packed)


def unpack_directory(packed: bytes) -> Iterator[Entry]:
    """The entries in `packed`; raises ValueError where it makes no sense."""
    for start in range(0, len(packed), BLOCK):
        yield from _unpack_block(packed[start : start + BLOCK])


def _blocks(names: Sequence[bytes]) -> Iterator[list[bytes]]:
    block: list[bytes] = []
    used = 0
    for name in names:
        length = DIRENT.size + len(name)
        if used + length > BLOCK:
            yield block
            block, used = [], 0
        block.append(name)
        used += length
    yield block


def _pack_block(entries: Sequence[Entry]) -> bytes:
    name_at = len(entries) * DIRENT.size
    head = bytearray()
    for entry in entries:
        head.extend(DIRENT.pack(entry.nid, name_at, entry.file_type, 0))
        name_at += len(entry.name)
    return bytes(head) + b"".join(entry.name for entry in entries)


def _unpack_block(block: bytes) -> Iterator[Entry]:
    if len(block) < DIRENT.size:
        raise ValueError("a directory block ends early")
    first = DIRENT.unpack_from(block)[1]
    if first < DIRENT.size or first % DIRENT.size or first > len(block):
        raise ValueError("a directory block makes no sense")
    heads = [DIRENT.unpack_from(block, at) for at in range(0, first, DIRENT.size)]
    ends = [head[1] for head in heads[1:]] + [len(block)]
    for (nid, start, file_type, _), end in zip(heads, ends, strict=True):
        name = block[start:end]
        yield Entry(name.rstrip(b"\0") if end == len(block) else name, nid, file_type)
