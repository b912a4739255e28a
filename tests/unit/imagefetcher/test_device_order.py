"""Where blocks go: what a start-up reads first and together, everything once, nothing twice."""

from __future__ import annotations

import io
import os
import random

from hypothesis import given
from hypothesis import strategies as st

from copydesk.imagefetcher.convert.order import DevicePlan, Reading, cold_order, plan_device, readings
from copydesk.imagefetcher.convert.sectors import write_data
from copydesk.imagefetcher.convert.spool import GRANULE, Content, Run, Spool
from copydesk.imagefetcher.index import BLOCK_SIZE
from copydesk.imagefetcher.trace import FileRead, Trace
from tests.fixtures.flat_image import flat_image
from tests.fixtures.oci_image import directory, file, hard_link, layer

SECTOR = 64 << 10
SECTOR_BLOCKS = SECTOR // BLOCK_SIZE


def content(first: int, blocks: int) -> Content:
    return Content(blocks * BLOCK_SIZE, (Run(0, blocks, first),))


def device_of(plan: DevicePlan) -> list[int]:
    """The spool block at each block of the device, -1 for zeros."""
    return [
        -1 if piece.spool_block < 0 else piece.spool_block + offset
        for piece in plan.pieces
        for offset in range(piece.blocks)
    ]


CONTENTS = st.lists(st.integers(1, 40), min_size=1, max_size=6)
READINGS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 39), st.integers(1, 40)), max_size=12)


@given(CONTENTS, READINGS)
def test_every_block_has_one_place_and_extents_say_which(
    sizes: list[int], reads: list[tuple[int, int, int]]
) -> None:
    contents, first = [], 0
    for size in sizes:
        contents.append(content(first, size))
        first += size
    hot = [Reading(number, start, count) for number, start, count in reads if number < len(sizes)]
    plan = plan_device(contents, [(number % 2, number) for number in range(len(sizes))], hot, SECTOR)
    device = device_of(plan)
    assert sorted(block for block in device if block >= 0) == list(range(first))
    assert len(device) == plan.blocks
    for number, own in enumerate(contents):
        covered = []
        for extent in plan.extents[number]:
            for offset in range(extent.blocks):
                covered.append(extent.file_block + offset)
                assert device[extent.device_block + offset] == own.runs[0].spool_block + covered[-1]
        assert covered == list(range(sizes[number]))


@given(CONTENTS, READINGS)
def test_what_is_read_lies_before_everything_else(sizes: list[int], reads: list[tuple[int, int, int]]) -> None:
    contents, first = [], 0
    for size in sizes:
        contents.append(content(first, size))
        first += size
    hot = [Reading(number, start, count) for number, start, count in reads if start < (sizes[number:] or [0])[0]]
    plan = plan_device(contents, [(0, number) for number in range(len(sizes))], hot, SECTOR)
    read = {
        contents[number].runs[0].spool_block + block
        for number, start, count in hot
        for block in range(start, min(start + count, sizes[number]))
    }
    assert read <= set(device_of(plan)[: plan.hot_blocks])
    assert plan.hot_blocks <= sum(sizes[number] for number in {number for number, _, _ in hot})


@given(CONTENTS, st.permutations(range(6)))
def test_what_is_read_lies_in_the_order_of_reading(sizes: list[int], order: list[int]) -> None:
    contents, first = [], 0
    for size in sizes:
        contents.append(content(first, size))
        first += size
    hot = [Reading(number, 0, sizes[number]) for number in order if number < len(sizes)]
    plan = plan_device(contents, [(0, number) for number in range(len(sizes))], hot, SECTOR)
    expected = [contents[number].runs[0].spool_block + at for number, _, size in hot for at in range(size)]
    assert device_of(plan)[: plan.hot_blocks] == expected


def test_each_layer_begins_on_a_fresh_sector_and_so_does_what_is_not_read_at_start() -> None:
    contents = [content(0, 3), content(3, 5), content(8, 40)]
    plan = plan_device(contents, [(1, 0), (1, 1), (2, 2)], [Reading(2, 0, 16)], SECTOR)
    assert plan.extents[2] == [(0, 16, 0), (16, 24, 2 * SECTOR_BLOCKS)]
    assert plan.extents[0] == [(0, 3, SECTOR_BLOCKS)]
    assert plan.extents[1] == [(0, 5, SECTOR_BLOCKS + 3)]


def test_holes_take_no_place() -> None:
    sparse = Content(100 * BLOCK_SIZE, (Run(16, 2, 0), Run(64, 1, 2)))
    plan = plan_device([sparse], [(1, 0)], [Reading(0, 16, 16)], SECTOR)
    assert plan.extents[0] == [(16, 2, 0), (64, 1, SECTOR_BLOCKS)]


def test_an_image_without_contents_still_has_a_device() -> None:
    assert device_of(plan_device([], [], [], SECTOR)) == [-1]


def test_a_trace_names_byte_ranges_and_what_is_not_there_is_left_out() -> None:
    archive = layer(directory("d"), file("d/a", b"x" * 20_000), hard_link("b", "d/a"), file("empty"))
    reads = (
        FileRead("/b", 4097, 1, at=2.0),
        FileRead("d/a", 0, 100, at=1.0),
        FileRead("d/a", 16_384, 1 << 40, at=3.0),
        FileRead("d/a", 20_000, 10, at=3.0),
        FileRead("empty", 0, 10),
        FileRead("gone", 0, 10),
        FileRead("d", 0, 10),
        FileRead("d/a", 0, 0),
    )
    with flat_image([archive]) as image:
        assert readings(image.root, Trace(1, reads)) == [Reading(0, 0, 1), Reading(0, 1, 1), Reading(0, 4, 1)]


def test_a_content_belongs_to_the_lowest_layer_that_brought_it() -> None:
    lower = layer(file("z", b"base"), file("m", b"more"))
    upper = layer(file("a", b"base"), file("b", b"own"))
    with flat_image([lower, upper]) as image:
        order = [
            (layer_number, image.spool.contents[number].size) for layer_number, number in cold_order(image.root)
        ]
    assert order == [(1, 4), (1, 4), (2, 3)]


def test_equal_contents_are_kept_once_and_zeros_not_at_all() -> None:
    data = os.urandom(GRANULE)
    with Spool() as spool:
        one = spool.add(3 * GRANULE, [(0, data), (GRANULE, bytes(GRANULE)), (2 * GRANULE, data)])
        holes = spool.add(3 * GRANULE, [(0, data), (2 * GRANULE, data)])
        kept = spool.size
        other = spool.add(3 * GRANULE + 1, [(0, data), (2 * GRANULE, data)])
        assert one == holes != other
        assert kept == 2 * GRANULE
        assert [run[:2] for run in spool.contents[one].runs] == [(0, 16), (32, 16)]
        assert spool.read(spool.contents[one].runs[1].spool_block, 16) == data


@given(st.integers(1, 300_000), st.integers(0, 2**32), st.integers(1, 100_000))
def test_contents_come_back_as_they_were_put_in(size: int, seed: int, step: int) -> None:
    pattern = seed.to_bytes(5, "big") + bytes(40_000)
    data = (pattern * (size // len(pattern) + 1))[:size]
    with Spool() as spool:
        spool.add(1000, [(0, b"\xff" * 1000)])
        number = spool.add(size, ((at, data[at : at + step]) for at in range(0, size, step)))
        whole = bytearray(size)
        for run in spool.contents[number].runs:
            at = run.file_block * BLOCK_SIZE
            part = spool.read(run.spool_block, run.blocks)[: size - at]
            whole[at : at + len(part)] = part
        assert bytes(whole) == data


def plain_digests(files: dict[str, bytes], trace: Trace | None = None) -> set[str]:
    """The sectors of an image of one layer."""
    with flat_image([layer(*[file(name, data) for name, data in files.items()])]) as image:
        hot = readings(image.root, trace) if trace else []
        plan = plan_device(image.spool.contents, cold_order(image.root), hot, SECTOR * 16)
        data = write_data(plan, image.spool, SECTOR * 16, io.BytesIO(), lambda _: None)
    return {sector.plain_digest for sector in data.sectors}


def test_images_that_differ_by_a_few_files_share_most_of_their_sectors() -> None:
    chance = random.Random(7)
    files = {f"f{number:04}": chance.randbytes(chance.randint(1, 9_000)) for number in range(3000)}
    sectors = plain_digests(files)
    assert len(sectors) > 15
    fewer = {name: data for name, data in files.items() if name not in ("f0100", "f0900")}
    longer = {**files, "f0300": chance.randbytes(50_000), "f0300a": b"new"}
    traced = Trace(1, tuple(FileRead(f"f{number:04}", 0, 1 << 20) for number in (5, 1800, 1801)))
    for other in (plain_digests(fewer), plain_digests(longer), plain_digests(files, traced)):
        assert len(sectors & other) > 0.6 * len(sectors)


def test_sectors_are_cut_at_their_size_and_say_what_they_hold() -> None:
    data = os.urandom(SECTOR + 3 * BLOCK_SIZE)
    heard: list[int] = []
    with Spool() as spool:
        spool.add(len(data), [(0, data)])
        plan = plan_device(spool.contents, [(1, 0)], [], SECTOR)
        out = io.BytesIO()
        described = write_data(plan, spool, SECTOR, out, heard.append)
    assert [sector.plain_length for sector in described.sectors] == [SECTOR, 3 * BLOCK_SIZE] == heard
    assert described.size == len(out.getvalue())
    assert described.device_size == len(data)
