"""What extended headers say of an entry: POSIX (pax) records, and the maps of sparse files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from copydesk.imagefetcher.convert.errors import TarError
from copydesk.imagefetcher.convert.tar_header import BLOCK, REGULAR, TarEntry, number

MAX_SPARSE_RANGES = 1 << 20
_XATTR = b"SCHILY.xattr."
_SPARSE = b"GNU.sparse."
_DECIMAL = re.compile(rb"(-?)(\d{1,20})(?:\.(\d*))?")
Records = list[tuple[bytes, bytes]]


def parse_records(raw: bytes) -> Records:
    """The records `LENGTH KEY=VALUE\\n` in their order; raises TarError for anything else."""
    records: Records = []
    at = 0
    while at < len(raw):
        space = raw.find(b" ", at, at + 20)
        if space < 0 or not raw[at:space].isdigit():
            raise TarError("an extended header makes no sense")
        end = at + int(raw[at:space])
        key, equals, value = raw[space + 1 : end - 1].partition(b"=")
        if end > len(raw) or end <= space + 1 or raw[end - 1 : end] != b"\n" or not equals or not key:
            raise TarError("an extended header makes no sense")
        records.append((key, value))
        at = end
    return records


def apply_records(entry: TarEntry, records: Records) -> None:
    """Puts what the records say into the entry. A later record wins; an empty value takes the header's own."""
    setters: dict[bytes, Callable[[TarEntry, bytes], None]] = {
        b"path": _set_name,
        b"linkpath": _set_link,
        b"uid": _set_uid,
        b"gid": _set_gid,
        b"mtime": _set_mtime,
        b"size": _set_size,
    }
    for key, value in records:
        if key in (b"path", b"linkpath") and b"\0" in value:
            raise TarError("a name holds a NUL", value)
        if key.startswith(_XATTR):
            entry.xattrs[key.removeprefix(_XATTR)] = value
        elif value and key in setters:
            setters[key](entry, value)


def sparse_ranges(entry: TarEntry, records: Records, read: Callable[[int], bytes]) -> None:
    """Reads the map of a sparse file in any of pax' three forms, where there is one.

    `read` takes bytes off the front of the entry's data: version 1.0 keeps its map there.
    """
    fields = dict(records)
    if not any(key.startswith(_SPARSE) for key in fields):
        return
    if fields.get(b"GNU.sparse.major") == b"1":
        entry.sparse = _leading_map(entry, read)
    elif b"GNU.sparse.map" in fields:
        entry.sparse = _pairs(_numbers(fields[b"GNU.sparse.map"].split(b",")))
    else:
        listed = [value for key, value in records if key in (b"GNU.sparse.offset", b"GNU.sparse.numbytes")]
        entry.sparse = _pairs(_numbers(listed))
    size = fields.get(b"GNU.sparse.realsize") or fields.get(b"GNU.sparse.size")
    if size is None:
        raise TarError("is sparse and does not say how large", entry.name)
    entry.size = _numbers([size])[0]
    entry.name = fields.get(b"GNU.sparse.name") or entry.name
    entry.kind = REGULAR
    check_ranges(entry)


def gnu_sparse_ranges(entry: TarEntry, header: bytes, read: Callable[[int], bytes]) -> None:
    """Reads the map of GNU's old form: four ranges in the header, then blocks of 21 while more are announced."""
    ranges = _header_ranges(header[386:482])
    more = header[482]
    while more:
        block = read(BLOCK)
        ranges += _header_ranges(block[:504])
        more = block[504]
        if len(ranges) > MAX_SPARSE_RANGES:
            raise TarError("has too many ranges", entry.name)
    entry.sparse = ranges
    entry.size = number(header[483:495])
    entry.kind = REGULAR
    check_ranges(entry)


def check_ranges(entry: TarEntry) -> None:
    """Raises TarError unless the ranges follow one another within the file and are what the archive stores."""
    ranges = entry.sparse or []
    if len(ranges) > MAX_SPARSE_RANGES:
        raise TarError("has too many ranges", entry.name)
    end = 0
    for offset, length in ranges:
        if offset < end or length < 0:
            raise TarError("has ranges that overlap", entry.name)
        end = offset + length
    if end > entry.size:
        raise TarError("has a range beyond its end", entry.name)
    if sum(length for _, length in ranges) != entry.stored:
        raise TarError("has ranges that are not what the archive stores", entry.name)


def _leading_map(entry: TarEntry, read: Callable[[int], bytes]) -> list[tuple[int, int]]:
    buffer = _take(entry, read)
    lines = buffer.split(b"\n")
    count = _numbers(lines[:1])[0]
    if count > MAX_SPARSE_RANGES:
        raise TarError("has too many ranges", entry.name)
    parts = [buffer]
    found = len(lines) - 1
    while found < 2 * count + 1:
        if len(parts) * BLOCK > 21 * (2 * count + 1):
            raise TarError("has a map of ranges that makes no sense", entry.name)
        parts.append(_take(entry, read))
        found += parts[-1].count(b"\n")
    return _pairs(_numbers(b"".join(parts).split(b"\n")[1 : 2 * count + 1]))


def _take(entry: TarEntry, read: Callable[[int], bytes]) -> bytes:
    if entry.stored < BLOCK:
        raise TarError("has a map of ranges that ends early", entry.name)
    entry.stored -= BLOCK
    return read(BLOCK)


def _header_ranges(raw: bytes) -> list[tuple[int, int]]:
    cells = [raw[at : at + 12] for at in range(0, len(raw), 12)]
    pairs = zip(cells[::2], cells[1::2], strict=True)
    return [(number(offset), number(length)) for offset, length in pairs if offset[0]]


def _pairs(values: Sequence[int]) -> list[tuple[int, int]]:
    if len(values) % 2:
        raise TarError("a map of ranges has an offset without a length")
    return list(zip(values[::2], values[1::2], strict=True))


def _numbers(values: Sequence[bytes]) -> list[int]:
    if not all(value.isdigit() and len(value) < 20 for value in values):
        raise TarError("a map of ranges makes no sense")
    return [int(value) for value in values]


def _decimal(value: bytes) -> tuple[int, int]:
    match = _DECIMAL.fullmatch(value)
    if match is None:
        raise TarError(f"{value[:40]!r} is no number")
    fraction = int((match[3] or b"0")[:9].ljust(9, b"0"))
    nanoseconds = int(match[2]) * 1_000_000_000 + fraction
    return (-nanoseconds if match[1] else nanoseconds), fraction


def _whole(value: bytes) -> int:
    nanoseconds, fraction = _decimal(value)
    if fraction:
        raise TarError(f"{value[:40]!r} is no whole number")
    return nanoseconds // 1_000_000_000


def _set_name(entry: TarEntry, value: bytes) -> None:
    entry.name = value


def _set_link(entry: TarEntry, value: bytes) -> None:
    entry.link = value


def _set_uid(entry: TarEntry, value: bytes) -> None:
    entry.uid = _whole(value)


def _set_gid(entry: TarEntry, value: bytes) -> None:
    entry.gid = _whole(value)


def _set_mtime(entry: TarEntry, value: bytes) -> None:
    entry.mtime = _decimal(value)[0]


def _set_size(entry: TarEntry, value: bytes) -> None:
    size = _whole(value)
    if size < 0:
        raise TarError(f"has a size of {size}", entry.name)
    entry.size = entry.stored = size
