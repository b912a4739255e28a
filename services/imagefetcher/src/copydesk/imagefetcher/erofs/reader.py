"""Reading EROFS metadata back into a tree, without mounting it: to verify an image, and to name what was read.

It reads what the writer writes and refuses the rest with MetadataError; a damaged or hostile file cannot make it
read beyond its end or go in circles.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path

from copydesk.imagefetcher.erofs import layout
from copydesk.imagefetcher.erofs.chunks import table_length, unpack_chunks
from copydesk.imagefetcher.erofs.directory import unpack_directory
from copydesk.imagefetcher.erofs.layout import BLOCK, SLOT, align
from copydesk.imagefetcher.erofs.xattr import packed_length, unpack_xattrs
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.tree import Extent, Node


class MetadataError(ImageError):
    """Metadata that this release did not write, or that is damaged; `reason` says what is wrong."""

    hint = "Convert the image again."

    def __init__(self, reason: str) -> None:
        super().__init__(f"image metadata: {reason}")
        self.reason = reason


@dataclass(slots=True)
class FileSystem:
    """A tree read from metadata; `extents` by content number, on the device `tag` of `device_blocks` blocks."""

    root: Node
    tag: str
    device_blocks: int
    extents: list[tuple[Extent, ...]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Inode:
    mode: int
    size: int
    detail: int
    layout: int
    body: int
    uid: int
    gid: int
    mtime: int
    xattrs: dict[bytes, bytes]


def read_metadata(path: Path) -> FileSystem:
    """The tree in the metadata file at `path`. Names that are hard links of one another share a node."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            return _Reader(raw).read()
    except (struct.error, ValueError, IndexError) as error:
        raise MetadataError(str(error)) from error


class _Reader:
    def __init__(self, raw: mmap.mmap) -> None:
        self._raw = raw
        self._nodes: dict[int, Node] = {}

    def read(self) -> FileSystem:
        fields = layout.SUPERBLOCK.unpack_from(self._raw, layout.SUPERBLOCK_OFFSET)
        if fields[0] != layout.MAGIC or fields[3] != layout.BLOCK_BITS:
            raise MetadataError("is no EROFS of 4 KiB blocks")
        self._check_sum()
        slot = layout.DEVICE_SLOT_NUMBER * layout.DEVICE_SLOT.size
        tag, blocks, _ = layout.DEVICE_SLOT.unpack_from(self._raw, slot)
        system = FileSystem(Node(0), tag.rstrip(b"\0").decode("ascii"), blocks)
        system.root = self._node(fields[5], system)
        self._descend(system)
        return system

    def _check_sum(self) -> None:
        block = bytearray(self._raw[layout.SUPERBLOCK_OFFSET : BLOCK])
        at = layout.CHECKSUM_OFFSET
        told = int.from_bytes(block[at : at + 4], "little")
        block[at : at + 4] = bytes(4)
        if layout.crc32c(bytes(block)) != told:
            raise MetadataError("the checksum of its superblock is wrong")

    def _descend(self, system: FileSystem) -> None:
        pending = [(system.root, self._number(system.root))]
        while pending:
            directory, nid = pending.pop()
            for entry in unpack_directory(self._flat(self._inode(nid))):
                if entry.name in (b".", b".."):
                    continue
                known = self._nodes.get(entry.nid)
                if known is not None and known.is_directory:
                    raise MetadataError("a directory has two names")
                node = known or self._node(entry.nid, system)
                directory.children[entry.name] = node
                if node.is_directory:
                    pending.append((node, entry.nid))

    def _number(self, root: Node) -> int:
        return next(nid for nid, node in self._nodes.items() if node is root)

    def _node(self, nid: int, system: FileSystem) -> Node:
        inode = self._inode(nid)
        node = Node(inode.mode, inode.uid, inode.gid, inode.mtime, inode.xattrs)
        self._nodes[nid] = node
        if node.is_regular:
            node.size = inode.size
            if inode.size:
                node.content = len(system.extents)
                system.extents.append(self._extents(inode, system.device_blocks))
        elif node.is_symlink:
            node.target = self._flat(inode)
        elif node.is_device:
            node.device = layout.decode_device(inode.detail)
        return node

    def _inode(self, nid: int) -> _Inode:
        at = nid * SLOT
        fields = layout.INODE.unpack(self._bytes(at, layout.INODE.size))
        if not fields[0] & layout.EXTENDED:
            raise MetadataError("has a compact inode, which images do not use")
        xattr_length = packed_length(fields[1])
        xattrs_at = at + layout.INODE.size
        seconds = fields[9] - (1 << 64 if fields[9] >> 63 else 0)
        return _Inode(
            mode=fields[2],
            size=fields[4],
            detail=fields[5],
            layout=fields[0] >> 1,
            body=xattrs_at + xattr_length,
            uid=fields[7],
            gid=fields[8],
            mtime=seconds * 1_000_000_000 + fields[10],
            xattrs=unpack_xattrs(self._bytes(xattrs_at, xattr_length)),
        )

    def _flat(self, inode: _Inode) -> bytes:
        """The data of a directory or symlink: whole blocks elsewhere, then maybe a tail behind the inode."""
        if inode.layout not in (layout.FLAT_PLAIN, layout.FLAT_INLINE):
            raise MetadataError(f"has a directory or symlink of layout {inode.layout}")
        tail = inode.size % BLOCK if inode.layout == layout.FLAT_INLINE else 0
        outside = inode.size - tail
        return self._bytes(inode.detail * BLOCK, outside) + self._bytes(inode.body, tail)

    def _extents(self, inode: _Inode, device_blocks: int) -> tuple[Extent, ...]:
        if inode.layout != layout.CHUNK_BASED:
            raise MetadataError(f"has a file of layout {inode.layout}, which images do not use")
        bits = inode.detail & layout.CHUNK_BITS_MASK
        length = table_length(inode.size, bits)
        table = self._bytes(align(inode.body, layout.CHUNK_INDEX.size), length)
        extents = tuple(unpack_chunks(inode.size, inode.detail, table))
        if any(extent.device_block + extent.blocks > device_blocks for extent in extents):
            raise MetadataError("has a file that lies beyond the end of its device")
        return extents

    def _bytes(self, at: int, length: int) -> bytes:
        if length and at + length > len(self._raw):
            raise MetadataError("ends early")
        return self._raw[at : at + length] if length else b""
