"""Input that was made to hurt: frames that promise gigabytes, headers without end, mounts of impossible names."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from copydesk.imagefetcher.device import mounts
from copydesk.imagefetcher.errors import IndexFormatError
from copydesk.imagefetcher.fetch.blob_source import unpack
from copydesk.imagefetcher.fetch.errors import Fault, SourceError
from copydesk.imagefetcher.frames import unpack_frame
from copydesk.imagefetcher.index import Sector, decode
from copydesk.imagefetcher.registry.challenge import Challenge, parse_challenges
from copydesk.imagefetcher.registry.manifest import media_type_of
from tests.fixtures.lazy_image import digest_of

BLOCK = bytes(4096)


def bomb(size: int, states_size: bool) -> bytes:
    compressor = zstandard.ZstdCompressor(write_content_size=states_size).compressobj(size if states_size else -1)
    parts = [compressor.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join([*parts, compressor.flush()])


@pytest.mark.parametrize("states_size", [True, False])
def test_a_frame_gets_no_more_memory_than_it_may_fill(states_size: bool) -> None:
    packed = bomb(256 << 20, states_size)
    tracemalloc.start()
    try:
        with pytest.raises(zstandard.ZstdError):
            unpack_frame(packed, len(BLOCK))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_frame_that_fits_is_unpacked_whether_it_states_its_length_or_not() -> None:
    for states_size in (True, False):
        packed = zstandard.ZstdCompressor(write_content_size=states_size).compress(BLOCK)
        assert unpack_frame(memoryview(packed), len(BLOCK)) == BLOCK


def test_a_sector_that_is_a_bomb_is_a_fault_of_its_source() -> None:
    packed = bomb(64 << 20, states_size=True)
    sector = Sector(0, len(packed), digest_of(packed), len(BLOCK), digest_of(BLOCK))
    with pytest.raises(SourceError) as caught:
        unpack("registry", sector, memoryview(packed))
    assert caught.value.fault is Fault.DIGEST


def test_a_challenge_that_goes_on_for_ever_is_read_as_far_as_it_makes_sense() -> None:
    endless = "Bearer" + " " * 100_000 + '"'
    assert parse_challenges(endless) == [Challenge("bearer")]
    assert parse_challenges('Bearer a="' + "\\x" * 100_000) == [Challenge("bearer"), Challenge("a")]


@given(st.text(st.characters(codec="latin-1")))
def test_no_challenge_makes_the_reader_fail(header: str) -> None:
    parse_challenges(header)


def test_json_that_nests_without_end_is_refused_like_any_other() -> None:
    nested = b'{"version": 1, "mediaType": "x", "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(IndexFormatError):
        decode(nested)
    assert media_type_of(nested, "told/by-header; charset=x") == "told/by-header"


def test_mounts_of_names_that_are_no_text_keep_nobody_from_mounting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(
        b"1 0 0:1 / /odd\xff\xfe rw - tmpfs a rw\n"
        b"2 0 0:2 / /line\x0b\x1c\xc2\x85break rw - tmpfs b rw\n"
        b"3 0 0:3 / /a\\040space ro shared:1 - erofs /state/meta\\134x ro\n"
    )
    monkeypatch.setattr(mounts, "_TABLE", table)
    odd, broken, mine = mounts.mounted()
    assert (odd.target, odd.source) == ("/odd\udcff\udcfe", "a")
    assert (broken.target, broken.kind) == ("/line\x0b\x1c\x85break", "tmpfs")
    assert mine == mounts.Mounted("/a space", "erofs", "/state/meta\\x")


def test_a_mount_is_found_behind_a_symlink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 0:1 / {tmp_path}/real/mnt rw - erofs a rw\n")
    monkeypatch.setattr(mounts, "_TABLE", table)
    assert mounts.mounted_at(tmp_path / "link" / "mnt") == mounts.Mounted(f"{tmp_path}/real/mnt", "erofs", "a")
    assert mounts.mounted_at(tmp_path / "mnt") is None
