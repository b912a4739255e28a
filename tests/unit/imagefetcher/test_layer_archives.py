"""Archives are read as tar writes them, in each of its forms; damaged ones are refused, and never with a crash."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.imagefetcher.convert import spool as spool_module
from copydesk.imagefetcher.convert.errors import LayerError, SpoolFullError, TarError
from copydesk.imagefetcher.convert.layer_stream import LayerStream
from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.convert.tar_reader import TarReader
from tests.fixtures.flat_image import flat_image, paths
from tests.fixtures.oci_image import Item, digest_of, directory, file, hard_link, layer, symlink

FORMS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_tar_is_read_the_same(form: int) -> None:
    items = [
        directory("d", 0o1777, uid=1000, gid=2000),
        file("d/" + "n" * 48 + "/" + "m" * 49, os.urandom(3000), mode=0o4755, mtime=1_600_000_000),
        symlink("s", "d"),
        hard_link("h", "d/" + "n" * 48 + "/" + "m" * 49, mode=0o4755),
        Item("null", tarfile.CHRTYPE, device=(1, 3), mode=0o666),
        Item("disk", tarfile.BLKTYPE, device=(8, 17)),
        Item("pipe", tarfile.FIFOTYPE),
    ]
    archive = layer(*items, form=form)
    with tarfile.open(fileobj=io.BytesIO(archive)) as expected, flat_image([archive]) as image:
        for member in expected.getmembers():
            node = image.at(member.name)
            assert node.mode & 0o7777 == (0o777 if member.issym() else member.mode)
            assert (node.uid, node.gid) == (member.uid, member.gid)
            if member.isfile():
                whole = expected.extractfile(member)
                assert whole is not None
                assert image.content(node) == whole.read()
        assert image.at("null").device == (1, 3)
        assert image.at("disk").device == (8, 17)
        assert image.at("s").target == b"d"


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_links_are_whole(form: int) -> None:
    name, target = "/".join(["n" * 200] * 3), "t" * 3000
    made = paths(layer(file(name, b"x"), symlink("s", target), form=form))
    assert made[name] == b"x"
    assert made["s"] == f"-> {target}"


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_file_whose_name_is_cut_at_a_slash_is_no_directory(form: int) -> None:
    name = "d" * 99 + "/" + "f" * 60
    assert paths(layer(file(name, b"x"), form=form)) == {"d" * 99: "directory", name: b"x"}


def test_fractions_of_a_second_and_times_before_1970_are_kept() -> None:
    with flat_image([layer(file("a", mtime=1_700_000_000.25), file("b", mtime=-1.5))]) as image:
        assert image.at("a").mtime == 1_700_000_000_250_000_000
        assert image.at("b").mtime == -1_500_000_000


def sparse_file(path: Path) -> bytes:
    with path.open("wb") as out:
        out.truncate(3_000_000)
        for at, data in ((0, b"start" * 100), (1_000_001, b"middle" * 2000), (2_999_990, b"the end!!!")):
            out.seek(at)
            out.write(data)
    return path.read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        ["--format=gnu"],
        ["--format=posix", "--sparse-version=0.0"],
        ["--format=posix", "--sparse-version=0.1"],
        ["--format=posix", "--sparse-version=1.0"],
    ],
)
def test_sparse_files_of_gnu_tar_are_read_with_their_holes(tmp_path: Path, options: list[str]) -> None:
    content = sparse_file(tmp_path / "sparse")
    made = subprocess.run(
        ["tar", "-C", str(tmp_path), *options, "--sparse", "-cf", "-", "sparse"], check=True, capture_output=True
    )
    assert len(made.stdout) < 1_000_000, "tar saw no holes to leave out"
    with flat_image([made.stdout]) as image:
        node = image.at("sparse")
        assert node.size == len(content)
        assert image.content(node) == content
        assert image.spool.size < 300_000


def test_many_ranges_of_the_old_sparse_form_are_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as out:
        out.truncate(100 * 65536)
        for number in range(60):
            out.seek(number * 65536)
            out.write(bytes([number + 1]) * 4096)
    command = ["tar", "-C", str(tmp_path), "--format=gnu", "--sparse", "-cf", "-", "sparse"]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with flat_image([archive]) as image:
        assert image.content(image.at("sparse")) == (tmp_path / "sparse").read_bytes()


def test_a_hole_without_end_takes_neither_time_nor_space() -> None:
    size = 1 << 43
    records = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "huge",
        "GNU.sparse.realsize": str(size),
    }
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("GNUSparseFile.0/huge")
        body = b"1\n4096\n3\n".ljust(512, b"\0") + b"end"
        info.size, info.pax_headers = len(body), records
        archive.addfile(info, io.BytesIO(body))
    with flat_image([raw.getvalue()]) as image:
        node = image.at("huge")
        assert node.size == size
        content = image.spool.contents[node.content]
        assert image.spool.read(content.runs[0].spool_block + 1, 1)[:3] == b"end"


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda raw: raw,
    "gzip": gzip.compress,
    "gzip in two members": lambda raw: gzip.compress(raw[:1000]) + gzip.compress(raw[1000:]),
    "zstd": zstandard.ZstdCompressor().compress,
    "zstd in two frames": lambda raw: b"".join(map(zstandard.ZstdCompressor().compress, (raw[:1000], raw[1000:]))),
    "zstd behind a frame to skip": lambda raw: (
        b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstandard.ZstdCompressor().compress(raw)
    ),
}


@pytest.mark.parametrize("packing", PACKERS)
def test_a_layer_is_unpacked_by_what_it_is_and_its_digest_is_of_the_plain_bytes(packing: str) -> None:
    plain = layer(file("a", b"x" * 5000))
    stream = LayerStream(io.BytesIO(PACKERS[packing](plain)))
    assert [entry.name for entry in TarReader(stream)] == [b"a"]
    assert stream.drain() == digest_of(plain)


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_packed_bytes_that_are_damaged_or_missing_are_noticed(packing: str) -> None:
    plain = layer(file("a", os.urandom(300_000)))
    packed = PACKERS[packing](plain)
    flipped = bytearray(packed)
    flipped[4:18] = b"\xff" * 14
    with pytest.raises(LayerError):
        LayerStream(io.BytesIO(bytes(flipped))).drain()
    found = ""
    with contextlib.suppress(LayerError):
        found = LayerStream(io.BytesIO(packed[:-3000])).drain()
    assert found != digest_of(plain)


@pytest.mark.parametrize("length", [1, 511, 512, 600, 1023, 1024 + 100])
def test_an_archive_that_breaks_off_is_refused(length: int) -> None:
    with pytest.raises(TarError):
        paths(layer(file("a", b"x" * 3000))[:length])


def test_an_archive_may_end_without_its_last_blocks() -> None:
    assert paths(b"") == {}
    assert paths(layer(file("a", b"x" * 512))[:1024]) == {"a": b"x" * 512}


@pytest.mark.parametrize(
    "records",
    [
        b"30 path=a\n",
        b"x path=a\n",
        b"9 path=a\n\n",
        b"10 =value\n",
        b"99999999999999999999999 path=a\n",
        b"12 path=a\0b\n",
        b"11 size=-1\n",
        b"12 size=1e9\n",
        b"27 GNU.sparse.map=0,1,2,3\n",
        b"27 GNU.sparse.map=0,9,2,3\n22 GNU.sparse.size=99\n",
    ],
)
def test_an_extended_header_that_makes_no_sense_is_refused(records: bytes) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        info = tarfile.TarInfo("pax")
        info.type, info.size = b"x", len(records)
        archive.addfile(info, io.BytesIO(records))
        archive.addfile(tarfile.TarInfo("a"))
    with pytest.raises(LayerError):
        paths(raw.getvalue())


def test_a_header_that_claims_to_be_huge_is_not_read_into_memory() -> None:
    info = tarfile.TarInfo("long")
    info.type, info.size = b"L", 1 << 33
    with pytest.raises(TarError, match="at most"):
        paths(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096))


def restamped(archive: bytearray) -> bytes:
    """Sums every header block up anew, so that changes get past the checksum."""
    for at in range(0, len(archive) - 511, 512):
        block = archive[at : at + 512]
        if block[257:262] == b"ustar":
            total = sum(block[:148]) + 8 * 32 + sum(block[156:])
            archive[at + 148 : at + 156] = b"%06o\0 " % total
    return bytes(archive)


SEEDS = [
    layer(directory("d"), file("d/a", b"x" * 700), hard_link("h", "d/a"), symlink("s", "d"), form=form)
    for form in FORMS
] + [layer(file("l" * 300, b"y", xattrs={"user.k": b"v"}), file("t", mtime=1.5))]


@settings(max_examples=300)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 1 << 13), st.binary(min_size=1, max_size=12)), min_size=1, max_size=6),
)
def test_a_damaged_archive_is_read_or_refused_and_nothing_else(
    seed: bytes, changes: list[tuple[int, bytes]]
) -> None:
    archive = bytearray(seed)
    for at, data in changes:
        start = at % len(archive)
        archive[start : start + len(data)] = data
    # The picture of a name that is no UTF-8 fails in the test's own hands.
    with contextlib.suppress(LayerError, UnicodeDecodeError):
        paths(restamped(archive[: len(seed)]))


def test_a_map_of_ranges_that_never_ends_takes_no_memory() -> None:
    """A map of sparse ranges, version 1.0, that is zeros for as long as the archive goes on."""
    records = b"".join(
        pax_record(key, value)
        for key, value in (
            (b"GNU.sparse.major", b"1"),
            (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.realsize", b"1"),
        )
    )
    size = 1 << 40
    head = tar_block(b"x", len(records), b"x") + records.ljust(512, b"\0")
    start = head + tar_block(b"f", size, b"0") + b"3\n".ljust(512, b"0")
    taken = 0

    class Endless:
        def read(self, count: int, /) -> bytes:
            nonlocal taken, start
            part, start = start[:count], start[count:]
            taken += count
            return part or bytes(b"0" * count)

    with pytest.raises(TarError, match="makes no sense"):
        list(TarReader(Endless()))
    assert taken < 1 << 20


def pax_record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 2
    assert length > 9
    return str(length).encode() + rest


def tar_block(name: bytes, size: int, kind: bytes) -> bytes:
    block = bytearray(512)
    block[0 : len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = (1 << 95 | size).to_bytes(12, "big")
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[257:265] = b"ustar  \0"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def test_a_disk_is_never_filled_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fstatvfs
    looked = 0

    def nearly_full(descriptor: int) -> os.statvfs_result:
        nonlocal looked
        looked += 1
        values = list(real(descriptor))
        if looked > 2:
            values[4] = 0  # f_bavail
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "fstatvfs", nearly_full)
    monkeypatch.setattr(spool_module, "LOOK_BYTES", 1 << 20)
    with Spool() as spool:
        pieces = ((at, os.urandom(1 << 20)) for at in range(0, 64 << 20, 1 << 20))
        with pytest.raises(SpoolFullError):
            spool.add(64 << 20, pieces)
        assert spool.size < 8 << 20
