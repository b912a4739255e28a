"""Writing EROFS metadata for a tree whose contents lie on a second device.

Two passes over the tree: the first gives every inode its place, which follows from sizes alone, the second writes.
Inodes come first, root foremost, then the blocks of directories and symlinks that do not fit behind their inode.
Nothing depends on the clock, on chance or on the order in which the tree was made.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from copydesk.imagefetcher.erofs import layout
from copydesk.imagefetcher.erofs.chunks import chunk_bits, chunk_format, pack_chunks, table_length
from copydesk.imagefetcher.erofs.directory import Entry, directory_size, pack_directory
from copydesk.imagefetcher.erofs.layout import BLOCK, SLOT, align
from copydesk.imagefetcher.erofs.xattr import count_field, pack_xattrs
from copydesk.imagefetcher.tree import Extent, Node

Extents = Callable[[Node], Sequence[Extent]]


@dataclass(slots=True)
class _Place:
    """Where an inode lies and how its data is kept."""

    node: Node
    parent: Node
    number: int
    links: int = 1
    offset: int = 0
    layout: int = layout.FLAT_PLAIN
    detail: int = 0
    size: int = 0
    body: int = 0
    first_block: int = 0


def write_metadata(root: Node, extents: Extents, device_blocks: int, tag: str, out: BinaryIO) -> int:
    """Writes the metadata of `root` to `out`, which must be seekable and readable, and returns its length in
    bytes.

    `extents` tells where a regular file's blocks lie on the device of `device_blocks` blocks. `tag` (at most 64
    characters) names the device. Raises ValueError for what EROFS cannot hold.
    """
    places = _survey(root)
    inodes_end = _place_inodes(places, extents)
    end = _place_blocks(places, align(inodes_end, BLOCK))
    out.seek(0)
    out.write(bytes(layout.ROOT_OFFSET))
    _write_inodes(places, extents, out)
    _write_blocks(places, out, end)
    _write_superblock(out, len(places), end // BLOCK, device_blocks, tag)
    return end


def _survey(root: Node) -> dict[int, _Place]:
    """Every inode once, parents first, with the number of its links."""
    places = {id(root): _Place(root, root, 1, links=2)}
    pending = [root]
    while pending:
        node = pending.pop()
        for _, child in sorted(node.children.items()):
            known = places.get(id(child))
            if known is not None:
                known.links += 1
                continue
            places[id(child)] = _Place(child, node, len(places) + 1, links=2 if child.is_directory else 1)
            if child.is_directory:
                places[id(node)].links += 1
                pending.append(child)
    return places


def _place_inodes(places: dict[int, _Place], extents: Extents) -> int:
    at = layout.ROOT_OFFSET
    for place in places.values():
        head = layout.INODE.size + len(pack_xattrs(place.node.xattrs))
        at = _place_inode(place, at, head, extents)
    return at


def _place_inode(place: _Place, at: int, head: int, extents: Extents) -> int:
    """Decides the layout of one inode that may begin at `at`; returns where it ends."""
    node = place.node
    place.offset = align(at, SLOT)
    if node.is_regular and node.size:
        bits = chunk_bits(node.size, extents(node))
        place.layout, place.detail, place.size = layout.CHUNK_BASED, chunk_format(bits), node.size
        place.body = table_length(node.size, bits)
        return align(place.offset + head, layout.CHUNK_INDEX.size) + place.body
    if node.is_device:
        place.detail = layout.encode_device(*node.device)
    if not (node.is_directory or node.is_symlink):
        return place.offset + head
    place.size = directory_size(_names(node)) if node.is_directory else len(node.target)
    tail = place.size % BLOCK
    if not tail or head + tail > BLOCK:
        return place.offset + head
    # What lies behind its inode must not cross a block, or the kernel calls the file system corrupt.
    if place.offset // BLOCK != (place.offset + head + tail - 1) // BLOCK:
        place.offset = align(place.offset, BLOCK)
    place.layout, place.body = layout.FLAT_INLINE, tail
    return place.offset + head + tail


def _names(node: Node) -> list[bytes]:
    return sorted([b".", b"..", *node.children])


def _place_blocks(places: dict[int, _Place], at: int) -> int:
    for place in places.values():
        if not (place.node.is_directory or place.node.is_symlink):
            continue
        outside = place.size - place.body
        if outside:
            place.first_block = place.detail = at // BLOCK
            at += align(outside, BLOCK)
    return at


def _write_inodes(places: dict[int, _Place], extents: Extents, out: BinaryIO) -> None:
    for place in places.values():
        _advance(out, place.offset)
        xattrs = pack_xattrs(place.node.xattrs)
        out.write(_inode(place, count_field(xattrs)) + xattrs)
        if place.layout == layout.CHUNK_BASED:
            _advance(out, align(out.tell(), layout.CHUNK_INDEX.size))
            bits = place.detail & layout.CHUNK_BITS_MASK
            out.write(pack_chunks(place.size, bits, extents(place.node)))
        elif place.layout == layout.FLAT_INLINE:
            out.write(_flat_data(place, places)[place.size - place.body :])


def _write_blocks(places: dict[int, _Place], out: BinaryIO, end: int) -> None:
    for place in places.values():
        if place.first_block:
            _advance(out, place.first_block * BLOCK)
            out.write(_flat_data(place, places)[: place.size - place.body])
    _advance(out, end)


def _flat_data(place: _Place, places: dict[int, _Place]) -> bytes:
    node = place.node
    if node.is_symlink:
        return node.target
    own = {b".": node, b"..": place.parent}
    return pack_directory([_entry(name, own.get(name) or node.children[name], places) for name in _names(node)])


def _entry(name: bytes, node: Node, places: dict[int, _Place]) -> Entry:
    return Entry(name, places[id(node)].offset // SLOT, layout.FILE_TYPES[stat.S_IFMT(node.mode)])


def _inode(place: _Place, xattr_count: int) -> bytes:
    node = place.node
    seconds, nanoseconds = divmod(node.mtime, 1_000_000_000)
    return layout.INODE.pack(
        layout.EXTENDED | place.layout << 1,
        xattr_count,
        node.mode,
        0,
        place.size,
        place.detail,
        place.number,
        node.uid,
        node.gid,
        seconds & 0xFFFFFFFFFFFFFFFF,
        nanoseconds,
        place.links,
    )


def _advance(out: BinaryIO, offset: int) -> None:
    out.write(bytes(offset - out.tell()))


def _write_superblock(out: BinaryIO, inodes: int, blocks: int, device_blocks: int, tag: str) -> None:
    superblock = layout.SUPERBLOCK.pack(
        layout.MAGIC,
        0,
        layout.COMPAT_CHECKSUM | layout.COMPAT_MTIME,
        layout.BLOCK_BITS,
        0,
        layout.ROOT_OFFSET // SLOT,
        inodes,
        0,
        0,
        blocks,
        0,
        0,
        bytes(16),
        bytes(16),
        layout.INCOMPAT_CHUNKED_FILE | layout.INCOMPAT_DEVICE_TABLE,
        0,
        1,
        layout.DEVICE_SLOT_NUMBER,
        0,
        0,
        0,
        0,
        0,
    )
    out.seek(layout.SUPERBLOCK_OFFSET)
    out.write(superblock + layout.DEVICE_SLOT.pack(tag.encode("ascii"), device_blocks, 0))
    out.seek(layout.SUPERBLOCK_OFFSET + layout.UUID_OFFSET)
    out.write(_identity(out))
    out.seek(layout.SUPERBLOCK_OFFSET)
    checksum = layout.crc32c(out.read(BLOCK - layout.SUPERBLOCK_OFFSET))
    out.seek(layout.SUPERBLOCK_OFFSET + layout.CHECKSUM_OFFSET)
    out.write(checksum.to_bytes(4, "little"))


def _identity(out: BinaryIO) -> bytes:
    """A UUID (version 8, RFC 9562) that follows from the metadata: equal images have equal ones."""
    at = out.tell()
    out.seek(0)
    seen = hashlib.sha256()
    while part := out.read(1 << 20):
        seen.update(part)
    out.seek(at)
    raw = bytearray(seen.digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)
