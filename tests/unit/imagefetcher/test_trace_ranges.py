"""From what the kernel asks of a device to ranges of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from copydesk.imagefetcher.convert.order import readings
from copydesk.imagefetcher.index import BLOCK_SIZE, SECTOR_SIZE
from copydesk.imagefetcher.trace import VERSION, FileRead, Trace
from copydesk.imagefetcher.tracing.ranges import NEAR, BlockMap, DeviceRead, file_reads
from copydesk.imagefetcher.tracing.staging import stage_tree
from copydesk.imagefetcher.tree import Extent, Node
from tests.fixtures.flat_image import flat_image
from tests.fixtures.oci_image import directory, file, hard_link, layer

FILE = 0o100644


def tree(*sizes: int) -> tuple[Node, BlockMap]:
    """Files `0`, `1` and so on of so many bytes, one after the other on the device."""
    root = Node(0o040755)
    extents, block = {}, 0
    for number, size in enumerate(sizes):
        blocks = -(-size // BLOCK_SIZE)
        root.children[str(number).encode()] = Node(FILE, size=size, content=number)
        extents[number] = [Extent(0, blocks, block)]
        block += blocks
    return root, BlockMap(root, extents)


def at(*blocks: int) -> list[DeviceRead]:
    """A read of each block, one a second."""
    return [DeviceRead(block * BLOCK_SIZE, BLOCK_SIZE, float(second)) for second, block in enumerate(blocks)]


def plain(reads: Sequence[FileRead]) -> list[tuple[str, int, int]]:
    return [(read.path, read.offset // BLOCK_SIZE, -(-read.length // BLOCK_SIZE)) for read in reads]


def test_blocks_that_follow_one_another_are_one_range_that_ends_with_the_file() -> None:
    _, blocks = tree(2 * BLOCK_SIZE + 100, BLOCK_SIZE)
    assert file_reads(at(0, 1, 2), blocks) == [FileRead("0", 0, 2 * BLOCK_SIZE + 100, 0.0)]


def test_ranges_stand_in_the_order_of_their_first_read_though_files_alternate() -> None:
    _, blocks = tree(4 * BLOCK_SIZE, 4 * BLOCK_SIZE)
    reads = file_reads(at(4, 0, 5, 1, 3), blocks)
    assert plain(reads) == [("1", 0, 2), ("0", 0, 2), ("0", 3, 1)]
    assert [read.at for read in reads] == [0.0, 1.0, 4.0]


def test_what_goes_on_much_later_is_a_range_of_its_own() -> None:
    _, blocks = tree(2 * BLOCK_SIZE, *[BLOCK_SIZE] * (NEAR + 1))
    reads = plain(file_reads(at(0, *range(2, NEAR + 3), 1), blocks))
    assert reads[0] == ("0", 0, 1)
    assert reads[-1] == ("0", 1, 1)


def test_a_block_counts_once_and_what_fills_sectors_not_at_all() -> None:
    _, blocks = tree(BLOCK_SIZE)
    assert plain(file_reads(at(0, 0, 7), blocks)) == [("0", 0, 1)]


def test_one_read_may_span_files() -> None:
    _, blocks = tree(BLOCK_SIZE, 3 * BLOCK_SIZE)
    assert plain(file_reads([DeviceRead(0, 3 * BLOCK_SIZE, 0.0)], blocks)) == [("0", 0, 1), ("1", 0, 2)]


@given(st.lists(st.integers(0, 11), max_size=40))
def test_every_block_that_was_read_is_in_one_range(numbers: list[int]) -> None:
    _, blocks = tree(5 * BLOCK_SIZE, 1, 6 * BLOCK_SIZE)
    starts = {"0": 0, "1": 5, "2": 6}
    found = [
        starts[path] + block
        for path, first, count in plain(file_reads(at(*numbers), blocks))
        for block in range(first, first + count)
    ]
    assert sorted(found) == sorted(set(numbers))


def test_a_trace_of_an_image_leads_back_to_the_same_blocks(tmp_path: Path) -> None:
    content = bytes(range(1, 256)) * 600
    archive = layer(directory("a"), file("a/one", content), hard_link("a/two", "a/one"), file("b", content[:5000]))
    with flat_image([archive]) as image:
        staged = stage_tree(image.root, image.spool, tmp_path)
        reads = file_reads([DeviceRead(0, staged.volume.size, 0.5)], BlockMap(staged.root, staged.extents))
        found = readings(image.root, Trace(VERSION, tuple(reads)))
    assert [(read.path, read.length, read.at) for read in reads] == [
        ("a/one", len(content), 0.5),
        ("b", 5000, 0.5),
    ]
    assert [reading.blocks for reading in found] == [-(-len(content) // BLOCK_SIZE), 2]


def test_the_device_of_a_staged_image_reads_as_its_files_do(tmp_path: Path) -> None:
    first, second = bytes(range(1, 256)) * 40, b"x" * 3 * BLOCK_SIZE
    with flat_image([layer(file("first", first)), layer(file("second", second))]) as image:
        staged = stage_tree(image.root, image.spool, tmp_path)
        for path, content in ((b"first", first), (b"second", second)):
            (extent,) = staged.extents[image.nodes()[path].content]
            start = extent.device_block * BLOCK_SIZE
            assert staged.device.read(start + 10, start + len(content)) == content[10:]
        # The second layer begins on a sector of its own; between them are zeros.
        assert staged.device.read(SECTOR_SIZE - 3, SECTOR_SIZE + 2) == b"\0\0\0xx"
