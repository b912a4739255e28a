"""The kernel's FUSE protocol, as far as a read-only file system of one folder needs it.

Layouts and numbers are those of include/uapi/linux/fuse.h, version 7.36.
"""

from __future__ import annotations

import enum
import stat
import struct
from dataclasses import dataclass

MAJOR, MINOR = 7, 36
ROOT_NODE = 1
BUFFER_BYTES = 64 << 10
"""Requests are read into so many bytes; without writes the kernel asks for no more than 8 KiB."""
MAX_PAGES = 256
MAX_READ = MAX_PAGES * 4096
MAX_READ_AHEAD = 4 << 20
MAX_BACKGROUND = 64
NOTIFY_RESEND = 7
FOREVER_S = 365 * 24 * 3600
"""Names and attributes never change, so the kernel may remember them."""

_ASYNC_READ, _PARALLEL_DIROPS, _MAX_PAGES = 1 << 0, 1 << 18, 1 << 22
_KEEP_CACHE = 1 << 1

HEADER = struct.Struct("<IIQQIIIHH")
_REPLY = struct.Struct("<IiQ")
_READ_IN = struct.Struct("<QQI")
_INTERRUPT_IN = struct.Struct("<Q")
_INIT_IN = struct.Struct("<IIII")
_INIT_OUT = struct.Struct("<IIIIHHIIHH32x")
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_ATTR_OUT = struct.Struct("<QII")
_OPEN_OUT = struct.Struct("<QII")
_STATFS = struct.Struct("<QQQQQIIII24x")
_DIRENT = struct.Struct("<QQII")


class Operation(enum.IntEnum):
    """What the kernel asks for; all others are answered with ENOSYS."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    OPEN = 14
    READ = 15
    STATFS = 17
    RELEASE = 18
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


UNANSWERED = (Operation.FORGET, Operation.BATCH_FORGET)


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `unique` names it in the reply, `node` is the file it is about, `thread` is who asks."""

    operation: int
    unique: int
    node: int
    thread: int
    body: memoryview


@dataclass(frozen=True, slots=True)
class Node:
    """What there is to say of a file (`size` in bytes) or of the one folder (`size` None)."""

    number: int
    size: int | None


def parse(message: bytes) -> Request:
    """Take a request apart."""
    length, operation, unique, node, _, _, thread, *_ = HEADER.unpack_from(message)
    return Request(operation, unique, node, thread, memoryview(message)[HEADER.size : length])


def reply_head(unique: int, length: int, error: int = 0) -> bytes:
    """The header of a reply with `length` bytes behind it; `error` is an errno."""
    return _REPLY.pack(_REPLY.size + length, -error, unique)


def resend() -> bytes:
    """Ask the kernel to send again what it has sent to a server that is gone (Linux 6.9 and later)."""
    return _REPLY.pack(_REPLY.size, NOTIFY_RESEND, 0)


def read_range(body: memoryview) -> tuple[int, int]:
    """Offset and length of a READ or READDIR."""
    _, offset, length = _READ_IN.unpack_from(body)
    return offset, length


def interrupted(body: memoryview) -> int:
    """The request that an INTERRUPT is about."""
    (unique,) = _INTERRUPT_IN.unpack_from(body)
    return int(unique)


def init_reply(body: memoryview) -> bytes:
    """Agree on a version and on large reads, several at a time."""
    _, _, _, offered = _INIT_IN.unpack_from(body)
    flags = offered & (_ASYNC_READ | _PARALLEL_DIROPS | _MAX_PAGES)
    congestion = MAX_BACKGROUND * 3 // 4
    return _INIT_OUT.pack(MAJOR, MINOR, MAX_READ_AHEAD, flags, MAX_BACKGROUND, congestion, 4096, 1, MAX_PAGES, 0)


def attributes(node: Node) -> bytes:
    """The answer to GETATTR."""
    return _ATTR_OUT.pack(FOREVER_S, 0, 0) + _attributes(node)


def entry(node: Node) -> bytes:
    """The answer to LOOKUP."""
    return _ENTRY.pack(node.number, 0, FOREVER_S, FOREVER_S, 0, 0) + _attributes(node)


def opened(node: Node) -> bytes:
    """The answer to OPEN: pages that are cached stay valid, since the content is named by its digest."""
    return _OPEN_OUT.pack(node.number, _KEEP_CACHE if node.size is not None else 0, 0)


def file_system(size: int) -> bytes:
    """The answer to STATFS: full, with `size` bytes."""
    return _STATFS.pack(size // 4096, 0, 0, 0, 0, 4096, 255, 4096, 0)


def listing(names: list[tuple[str, int]], offset: int, length: int) -> bytes:
    """The answer to READDIR: names with their numbers, from the `offset`th on, as many as go into `length`."""
    out = bytearray()
    for at, (name, number) in enumerate(names[offset:], start=offset + 1):
        raw = name.encode()
        padding = -(_DIRENT.size + len(raw)) % 8
        record = _DIRENT.pack(number, at, len(raw), stat.S_IFREG >> 12) + raw + bytes(padding)
        if len(out) + len(record) > length:
            break
        out += record
    return bytes(out)


def _attributes(node: Node) -> bytes:
    size = node.size or 0
    mode = stat.S_IFDIR | 0o500 if node.size is None else stat.S_IFREG | 0o400
    return _ATTR.pack(node.number, size, -(-size // 512), 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
