"""The structures of EROFS on disk, as far as an image needs them."""

from __future__ import annotations

import stat
import struct
from typing import Final

MAGIC: Final = 0xE0F5E1E2
BLOCK_BITS: Final = 12
BLOCK: Final = 1 << BLOCK_BITS
SLOT: Final = 32
"""Inodes are named by the number of the 32-byte slot at which they begin."""
SUPERBLOCK_OFFSET: Final = 1024
SUPERBLOCK: Final = struct.Struct("<IIIBBHQQIIII16s16sIHHHBBIQB23x")
CHECKSUM_OFFSET: Final = 4
UUID_OFFSET: Final = 48
DEVICE_SLOT: Final = struct.Struct("<64sII56x")
DEVICE_SLOT_NUMBER: Final = (SUPERBLOCK_OFFSET + SUPERBLOCK.size) // DEVICE_SLOT.size
ROOT_OFFSET: Final = (DEVICE_SLOT_NUMBER + 1) * DEVICE_SLOT.size

COMPAT_CHECKSUM: Final = 0x1
COMPAT_MTIME: Final = 0x2
INCOMPAT_CHUNKED_FILE: Final = 0x4
INCOMPAT_DEVICE_TABLE: Final = 0x8

INODE: Final = struct.Struct("<HHHHQIIIIQII16x")
"""Format, xattrs, mode, -, size, (first block, device or chunk format), number, uid, gid, mtime, its ns, links."""
FLAT_PLAIN: Final = 0
FLAT_INLINE: Final = 2
CHUNK_BASED: Final = 4
EXTENDED: Final = 1

CHUNK_FORMAT_INDEXES: Final = 0x20
CHUNK_BITS_MASK: Final = 0x1F
CHUNK_INDEX: Final = struct.Struct("<HHI")
"""Advice, device, first block."""
HOLE: Final = 0xFFFFFFFF

DIRENT: Final = struct.Struct("<QHBB")
FILE_TYPES: Final = {
    stat.S_IFREG: 1,
    stat.S_IFDIR: 2,
    stat.S_IFCHR: 3,
    stat.S_IFBLK: 4,
    stat.S_IFIFO: 5,
    stat.S_IFSOCK: 6,
    stat.S_IFLNK: 7,
}

XATTR_HEADER: Final = struct.Struct("<IB7x")
XATTR_ENTRY: Final = struct.Struct("<BBH")
XATTR_PREFIXES: Final = (
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (1, b"user."),
    (4, b"trusted."),
    (6, b"security."),
)
"""The kernel knows names only by these prefixes; the first two are whole names."""


def align(offset: int, unit: int) -> int:
    """`offset`, rounded up to a multiple of `unit`."""
    return -(-offset // unit) * unit


def encode_device(major: int, minor: int) -> int:
    """Device numbers as the kernel's `new_encode_dev` does: 12 bits of major, 20 of minor."""
    return (minor & 0xFF) | (major << 8) | ((minor & ~0xFF) << 12)


def decode_device(value: int) -> tuple[int, int]:
    """Major and minor of what `encode_device` gave."""
    return (value >> 8) & 0xFFF, (value & 0xFF) | ((value >> 12) & 0xFFF00)


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC32C: Final = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) without the final inversion: what EROFS calls the checksum of a superblock."""
    value = 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ _CRC32C[(value ^ byte) & 0xFF]
    return value
