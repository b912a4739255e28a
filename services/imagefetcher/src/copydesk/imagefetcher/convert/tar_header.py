"""One 512-byte header of a tar archive: v7, ustar, star and GNU."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field

from copydesk.imagefetcher.convert.errors import TarError

BLOCK = 512
REGULAR = b"0"
HARD_LINK = b"1"
SYMLINK = b"2"
CHARACTER_DEVICE = b"3"
BLOCK_DEVICE = b"4"
DIRECTORY = b"5"
FIFO = b"6"
CONTIGUOUS = b"7"
PAX = b"x"
PAX_GLOBAL = b"g"
GNU_LONG_NAME = b"L"
GNU_LONG_LINK = b"K"
GNU_SPARSE = b"S"
_TYPES = {
    SYMLINK: stat.S_IFLNK,
    CHARACTER_DEVICE: stat.S_IFCHR,
    BLOCK_DEVICE: stat.S_IFBLK,
    DIRECTORY: stat.S_IFDIR,
    FIFO: stat.S_IFIFO,
}


@dataclass(slots=True)
class TarEntry:
    """An entry of a layer. `size` is what a reader of the file sees, `stored` what lies in the archive.

    `mtime` is in nanoseconds. `sparse` lists the ranges (offset, length) that are stored; None: the file is whole.
    """

    name: bytes
    kind: bytes
    mode: int
    uid: int
    gid: int
    mtime: int
    size: int
    link: bytes
    device: tuple[int, int]
    stored: int = 0
    xattrs: dict[bytes, bytes] = field(default_factory=dict)
    sparse: list[tuple[int, int]] | None = None

    @property
    def is_hard_link(self) -> bool:
        """Whether `link` names another entry."""
        return self.kind == HARD_LINK

    def file_mode(self) -> int:
        """The mode with the bits of the type; raises TarError for a type that no file system has."""
        if self.kind in (REGULAR, CONTIGUOUS, GNU_SPARSE):
            return stat.S_IFREG | self.mode
        if self.kind not in _TYPES:
            raise TarError(f"is of type {self.kind!r}, which no file has", self.name)
        return _TYPES[self.kind] | self.mode


def parse_header(block: bytes) -> TarEntry:
    """The entry that a header describes on its own; raises TarError for what is no header."""
    _check_sum(block)
    name = _text(block[0:100])
    posix = block[257:263] == b"ustar\0"
    device = (0, 0)
    if posix or block[257:265] == b"ustar  \0":
        device = number(block[329:337]), number(block[337:345])
    if posix:
        star = block[508:512] == b"tar\0"
        prefix = _text(block[345:476] if star else block[345:500])
        name = prefix + b"/" + name if prefix else name
    kind = block[156:157]
    size = number(block[124:136])
    if kind == b"\0":
        # Old archives mark directories by a slash at the end of the name, which is not known whole yet.
        kind = REGULAR
    if size < 0:
        raise TarError(f"has a size of {size}", name)
    return TarEntry(
        name=name,
        kind=kind,
        mode=number(block[100:108]) & 0o7777,
        uid=number(block[108:116]),
        gid=number(block[116:124]),
        mtime=number(block[136:148]) * 1_000_000_000,
        size=size,
        link=_text(block[157:257]),
        device=device,
        stored=size,
    )


def number(raw: bytes) -> int:
    """A number of a header: octal digits, or binary in base 256 where the first bit is set."""
    if raw[0] & 0x80:
        value = int.from_bytes(raw, "big")
        bits = 8 * len(raw)
        # The first bit marks the form, the second is the sign.
        return (value & ((1 << bits - 1) - 1)) - ((1 << bits - 1) if raw[0] & 0x40 else 0)
    digits = raw.strip(b" \0").split(b"\0")[0].strip()
    if not digits:
        return 0
    if not digits.isdigit():
        raise TarError(f"{raw[:12]!r} is no number")
    try:
        return int(digits, 8)
    except ValueError as error:
        raise TarError(f"{raw[:12]!r} is no octal number") from error


def _text(raw: bytes) -> bytes:
    return raw.split(b"\0", 1)[0]


def _check_sum(block: bytes) -> None:
    try:
        told = number(block[148:156])
    except TarError as error:
        raise TarError("is no tar archive") from error
    rest = block[:148] + b" " * 8 + block[156:]
    unsigned = sum(rest)
    if told == unsigned:
        return
    # Old archivers summed signed characters.
    if told != unsigned - 256 * sum(byte > 127 for byte in rest):
        raise TarError("is no tar archive, or damaged: the checksum of a header is wrong")
