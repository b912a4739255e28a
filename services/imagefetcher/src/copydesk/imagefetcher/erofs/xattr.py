"""Extended attributes as EROFS keeps them behind an inode."""

from __future__ import annotations

from copydesk.imagefetcher.erofs.layout import XATTR_ENTRY, XATTR_HEADER, XATTR_PREFIXES, align

MAX_BYTES = XATTR_HEADER.size + 4 * 0xFFFE
MAX_VALUE = 0xFFFF


def is_storable(name: bytes, value: bytes) -> bool:
    """Whether EROFS can hold this attribute: of a namespace that it knows, and not too long."""
    return _split(name) is not None and len(name) <= 255 and b"\0" not in name and len(value) <= MAX_VALUE


def pack_xattrs(xattrs: dict[bytes, bytes]) -> bytes:
    """The attributes in the order of their names, empty for none; ValueError for what `is_storable` denies."""
    if not xattrs:
        return b""
    entries = b"".join(_entry(name, value) for name, value in sorted(xattrs.items()))
    if XATTR_HEADER.size + len(entries) > MAX_BYTES:
        raise ValueError(f"extended attributes of {len(entries)} bytes, at most {MAX_BYTES} can be kept")
    return XATTR_HEADER.pack(0, 0) + entries


def count_field(packed: bytes) -> int:
    """What an inode says of its attributes' length."""
    return (len(packed) - XATTR_HEADER.size) // 4 + 1 if packed else 0


def packed_length(count: int) -> int:
    """The length of the attributes of an inode with this count."""
    return XATTR_HEADER.size + 4 * (count - 1) if count else 0


def unpack_xattrs(packed: bytes) -> dict[bytes, bytes]:
    """The attributes in `packed`; raises ValueError where it makes no sense."""
    prefixes = dict(XATTR_PREFIXES)
    xattrs: dict[bytes, bytes] = {}
    at = XATTR_HEADER.size
    while at < len(packed):
        if at + XATTR_ENTRY.size > len(packed):
            raise ValueError("an extended attribute ends early")
        name_length, index, value_length = XATTR_ENTRY.unpack_from(packed, at)
        name_at = at + XATTR_ENTRY.size
        value_at = name_at + name_length
        if index not in prefixes or value_at + value_length > len(packed):
            raise ValueError("an extended attribute makes no sense")
        xattrs[prefixes[index] + packed[name_at:value_at]] = packed[value_at : value_at + value_length]
        at = align(value_at + value_length, 4)
    return xattrs


def _split(name: bytes) -> tuple[int, bytes] | None:
    for index, prefix in XATTR_PREFIXES:
        if name == prefix or (name.startswith(prefix) and prefix.endswith(b".")):
            return index, name[len(prefix) :]
    return None


def _entry(name: bytes, value: bytes) -> bytes:
    split = _split(name)
    if split is None or not is_storable(name, value):
        raise ValueError(f"EROFS cannot hold the extended attribute {name!r}")
    index, suffix = split
    entry = XATTR_ENTRY.pack(len(suffix), index, len(value)) + suffix + value
    return entry.ljust(align(len(entry), 4), b"\0")
