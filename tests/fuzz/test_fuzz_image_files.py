"""An image that somebody made to hurt: its manifests, its layers, the index and the trace of its lazy form.

Headers of tar entries, damaged behind their sums, are tried in tests/unit/imagefetcher/test_layer_archives.py.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from copydesk.imagefetcher.convert.layer_stream import LayerStream
from copydesk.imagefetcher.convert.tar_reader import TarReader
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.index import decode, encode
from copydesk.imagefetcher.registry.challenge import parse_challenges
from copydesk.imagefetcher.registry.manifest import decode_config, decode_index, decode_manifest, media_type_of
from copydesk.imagefetcher.trace import FileRead, Trace, decode_trace, encode_trace
from tests.fixtures.lazy_image import SMALL_SECTOR, describe, digest_of
from tests.fuzz.corpus import cases, effort
from tests.fuzz.hostile_bytes import damaged

MOST_ENTRIES = 10_000
PLAIN_LIMIT = 64 << 20

DIGEST = digest_of(b"")
descriptors = st.fixed_dictionaries(
    {
        "mediaType": st.sampled_from(["application/vnd.oci.image.layer.v1.tar+gzip", "", "x" * 300]),
        "digest": st.sampled_from([DIGEST, "sha256:../../x", "md5:00", "", DIGEST.upper()]),
        "size": st.integers(-2, 1 << 66),
    },
    optional={"annotations": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)},
)
documents = st.fixed_dictionaries(
    {"schemaVersion": st.sampled_from([2, 1, -1, "2"])},
    optional={
        "mediaType": st.sampled_from(["application/vnd.oci.image.manifest.v1+json", "text/html", None]),
        "config": descriptors,
        "layers": st.lists(descriptors, max_size=3),
        "manifests": st.lists(descriptors, max_size=3),
        "subject": descriptors,
        "rootfs": st.fixed_dictionaries({"diff_ids": st.lists(st.sampled_from([DIGEST, "x"]), max_size=2)}),
        "os": st.text(max_size=4),
    },
).map(lambda document: json.dumps(document).encode())

RIGHT_INDEX = encode(describe(bytes(4096), bytes(range(256)) * 1024, SMALL_SECTOR, prefetch=(2, 0)).index)
RIGHT_TRACE = encode_trace(Trace(1, (FileRead("etc/passwd", 0, 10), FileRead("bin/sh", 4096, 1))))
READERS: dict[str, Callable[[bytes], object]] = {
    "manifest": lambda raw: decode_manifest("registry", raw),
    "index of platforms": lambda raw: decode_index("registry", raw),
    "config": lambda raw: decode_config("registry", raw),
    "media type": lambda raw: media_type_of(raw, ""),
    "challenge": lambda raw: parse_challenges(raw.decode("latin-1")),
    "index": decode,
    "trace": decode_trace,
}


def check_documents(raw: bytes) -> None:
    """Each reader takes it or refuses it with an error of its own."""
    for read in READERS.values():
        with contextlib.suppress(ImageError):
            read(raw)


@effort(100)
@given(raw=damaged(documents | st.just(RIGHT_INDEX) | st.just(RIGHT_TRACE), most=3) | st.binary(max_size=40))
def test_a_document_is_read_or_refused_with_a_typed_error(raw: bytes) -> None:
    check_documents(raw)


@pytest.mark.parametrize(("name", "raw"), cases("image_documents"))
def test_documents_that_were_kept(name: str, raw: bytes) -> None:
    check_documents(raw)


@effort(60)
@given(raw=damaged(st.just(RIGHT_INDEX), most=2))
def test_an_index_that_is_taken_agrees_with_itself(raw: bytes) -> None:
    """Whatever it was before, its sectors lie one behind the other in the blob and make the device."""
    try:
        index = decode(raw)
    except ImageError:
        return
    ends = [sector.offset + sector.length for sector in index.data.sectors]
    assert [sector.offset for sector in index.data.sectors] == [0, *ends[:-1]]
    assert sum(sector.plain_length for sector in index.data.sectors) == index.data.device_size
    assert all(0 <= number < len(index.data.sectors) for number in index.prefetch)


names = st.sampled_from(["a", "../a", "/etc/passwd", "a/../../b", ".wh..wh..opq", "é" * 60, "x" * 200])
kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    out = io.BytesIO()
    form = draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for _ in range(draw(st.integers(0, 4))):
            entry = tarfile.TarInfo(draw(names))
            entry.type, entry.linkname = draw(kinds), draw(names)
            content = draw(st.binary(max_size=40)) if entry.type == tarfile.REGTYPE else b""
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def packed(archive: bytes, how: str) -> bytes:
    if how == "gzip":
        return gzip.compress(archive, mtime=0)
    return zstandard.compress(archive) if how == "zstd" else archive


def check_layer(raw: bytes) -> None:
    """It is read to its end, of which there is one, or refused with a typed error."""
    seen = 0

    def progress(count: int) -> None:
        nonlocal seen
        seen += count
        assert seen <= PLAIN_LIMIT

    with contextlib.suppress(ImageError):
        stream = LayerStream(io.BytesIO(raw), progress)
        reader = TarReader(stream)
        for number, _ in enumerate(reader):
            assert number < MOST_ENTRIES
            for _, part in reader.pieces():
                assert part
        stream.drain()


layers = st.builds(packed, archives(), st.sampled_from(["gzip", "zstd", "plain"]))


@effort(80)
@given(raw=damaged(layers, most=3) | st.binary(max_size=64))
def test_a_layer_is_read_or_refused_with_a_typed_error(raw: bytes) -> None:
    check_layer(raw)


@effort(60)
@given(archive=damaged(archives(), most=3), how=st.sampled_from(["gzip", "zstd"]))
def test_what_is_packed_well_may_be_wrong_within(archive: bytes, how: str) -> None:
    check_layer(packed(archive, how))


@pytest.mark.parametrize(("name", "raw"), cases("layers"))
def test_layers_that_were_kept(name: str, raw: bytes) -> None:
    check_layer(raw)
