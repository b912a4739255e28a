"""The index: what is written is read back, and what makes no sense is refused with the field that is wrong."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from copydesk.imagefetcher.errors import IndexFormatError, IndexVersionError
from copydesk.imagefetcher.index import (
    SECTOR_SIZE,
    VERSION,
    Data,
    ImageIndex,
    Metadata,
    Original,
    Platform,
    Sector,
    decode,
    encode,
)
from copydesk.imagefetcher.trace import (
    FileRead,
    Trace,
    TraceFormatError,
    decode_trace,
    encode_trace,
    path_bytes,
    path_text,
)

DIGEST = "sha256:" + "0a" * 32


def example() -> ImageIndex:
    sectors = (Sector(0, 100, DIGEST, SECTOR_SIZE, DIGEST), Sector(100, 50, DIGEST, 8192, DIGEST))
    return ImageIndex(
        version=VERSION,
        image=Original("application/vnd.oci.image.manifest.v1+json", DIGEST, 500, DIGEST),
        platform=Platform("linux", "arm64", "v8"),
        metadata=Metadata(DIGEST, 300, DIGEST, 8192),
        data=Data(DIGEST, 150, SECTOR_SIZE + 8192, SECTOR_SIZE, sectors),
        prefetch=(1, 0),
    )


def changed(path: str, value: Any) -> bytes:
    raw = json.loads(msgspec.json.encode(example()))
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    inner = raw
    for part in parents:
        inner = inner[part]
    inner[last] = value
    return json.dumps(raw).encode()


def test_an_index_is_read_back_as_it_was_written() -> None:
    assert decode(encode(example())) == example()
    assert encode(example()) == encode(decode(encode(example())))


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("image.digest", "sha512:00", "image.digest"),
        ("image.digest", DIGEST.upper(), "image.digest"),
        ("image.size", 0, "image.size"),
        ("metadata.plain_size", 8191, "metadata.plain_size"),
        ("metadata.plain_size", 1 << 40, "metadata.plain_size"),
        ("data.sector_size", 3 << 20, "data.sector_size"),
        ("data.sectors", [], "data.sectors"),
        ("data.sectors.0.plain_length", 4096, "data.sectors[0].plain_length"),
        ("data.sectors.1.plain_length", 4097, "data.sectors[1].plain_length"),
        ("data.sectors.1.offset", 99, "data.sectors[1].offset"),
        ("data.sectors.0.length", 1 << 30, "data.sectors[0].length"),
        ("data.sectors.0.digest", "../../etc/passwd", "data.sectors[0].digest"),
        ("data.size", 151, "data.size"),
        ("data.device_size", SECTOR_SIZE, "data.device_size"),
        ("prefetch", [0, 0], "prefetch"),
        ("prefetch", [2], "prefetch"),
        ("prefetch", [-1], "prefetch"),
        ("data.sectors.0.offset", "0", "index"),
    ],
)
def test_an_index_at_odds_with_itself_is_refused_by_the_field_that_is_wrong(
    path: str, value: Any, field: str
) -> None:
    with pytest.raises(IndexFormatError) as caught:
        decode(changed(path, value))
    assert caught.value.field == field


def test_a_later_version_is_told_from_a_damaged_index() -> None:
    later = json.dumps({"version": 2, "anything": "else"}).encode()
    with pytest.raises(IndexVersionError) as caught:
        decode(later)
    assert (caught.value.version, caught.value.supported) == (2, 1)
    with pytest.raises(IndexFormatError):
        decode(b"{")


def test_fields_of_the_same_version_that_are_unknown_here_are_left_out() -> None:
    assert decode(changed("remark", "x")) == example()


def test_a_trace_is_read_back_and_a_bad_one_is_refused() -> None:
    trace = Trace(1, (FileRead("usr/bin/python3", 0, 4096, 0.5),), image=DIGEST, command=("python3",))
    assert decode_trace(encode_trace(trace)) == trace
    for raw in (
        b"",
        b"[]",
        b'{"version":2,"reads":[]}',
        b'{"version":1,"reads":[{"path":"a","offset":-1,"length":1}]}',
    ):
        with pytest.raises(TraceFormatError):
            decode_trace(raw)


@pytest.mark.parametrize("name", [b"plain", "gr\u00fcn".encode(), b"\xff\xfe", b"back\\slash", rb"\xff", b"\\x5c"])
def test_any_name_is_written_as_text_and_read_back(name: bytes) -> None:
    assert path_bytes(path_text(name)) == name
