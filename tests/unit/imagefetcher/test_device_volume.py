"""Which parts of which sectors a read is made of, and the kernel's protocol."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from copydesk.imagefetcher.device import wire
from copydesk.imagefetcher.device.volume import Volume
from tests.fixtures.lazy_image import SMALL_SECTOR, plain_image

IMAGE = plain_image(5)
VOLUME = Volume(16, f"sha256:{'a' * 64}", IMAGE.index.data)
SIZE = len(IMAGE.device)


def read(offset: int, length: int) -> bytes:
    return b"".join(
        IMAGE.device[piece.place.number * SMALL_SECTOR :][piece.start : piece.stop]
        for piece in VOLUME.pieces(offset, length)
    )


@given(st.integers(0, SIZE + SMALL_SECTOR), st.integers(0, 3 * SMALL_SECTOR))
def test_the_pieces_of_a_read_are_what_the_device_has_there(offset: int, length: int) -> None:
    assert read(offset, length) == IMAGE.device[offset : offset + length]


def test_reads_of_odd_sizes_across_sectors_and_at_the_end() -> None:
    assert read(SMALL_SECTOR - 1, 2) == IMAGE.device[SMALL_SECTOR - 1 : SMALL_SECTOR + 1]
    assert read(SIZE - 3, 100) == IMAGE.device[-3:]
    assert VOLUME.pieces(SIZE, 4096) == []
    assert [piece.place.number for piece in VOLUME.pieces(0, SIZE)] == [0, 1, 2, 3, 4]


def request(operation: int, body: bytes) -> bytes:
    return wire.HEADER.pack(wire.HEADER.size + len(body), operation, 7, 1, 0, 0, 0, 0, 0) + body


def test_a_request_is_taken_apart_and_what_lies_behind_it_ignored() -> None:
    parsed = wire.parse(request(15, struct.pack("<QQI", 3, 4096, 131072)) + b"rest")
    assert (parsed.operation, parsed.unique, parsed.node) == (wire.Operation.READ, 7, 1)
    assert wire.read_range(parsed.body) == (4096, 131072)
    assert len(parsed.body) == 20


def test_replies_have_the_kernel_s_sizes() -> None:
    node = wire.Node(16, 100_000)
    init = wire.init_reply(memoryview(struct.pack("<IIII", 7, 45, 1 << 20, 0xFFFFFFFF)))
    assert (len(init), len(wire.attributes(node)), len(wire.entry(node)), len(wire.opened(node))) == (
        64,
        104,
        128,
        16,
    )
    assert len(wire.file_system(0)) == 80
    assert wire.reply_head(9, 4, 5) == struct.pack("<IiQ", 20, -5, 9)
    flags = struct.unpack_from("<IIII", init)[3]
    assert flags & 1 << 22  # or the kernel reads 128 KiB at a time


@given(st.integers(0, 40), st.integers(24, 4096))
def test_a_listing_in_parts_names_everything_once(count: int, length: int) -> None:
    names = [(f"{number:064x}", number + 16) for number in range(count)]
    seen: list[str] = []
    offset = 0
    while part := wire.listing(names, offset, max(length, 96)):
        at = 0
        while at < len(part):
            _, offset, size, _ = struct.unpack_from("<QQII", part, at)
            seen.append(part[at + 24 : at + 24 + size].decode())
            at += 24 + size + (-(24 + size) % 8)
    assert seen == [name for name, _ in names]
