"""From blocks of a device, in the order in which the kernel asked for them, to ranges of files. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from copydesk.imagefetcher.index import BLOCK_SIZE
from copydesk.imagefetcher.trace import FileRead, path_text
from copydesk.imagefetcher.tree import Extent, Node, walk

NEAR = 64
"""Blocks that continue one another are one range, if at most so many other ranges began in between.

The number decides, not the time: a start-up that reads the same gives the same ranges on a slower machine.
"""


class DeviceRead(NamedTuple):
    """`length` bytes at `offset` of the device, asked for `at` seconds after the start."""

    offset: int
    length: int
    at: float


class _Stretch(NamedTuple):
    """Blocks of the device that belong to a content."""

    device_block: int
    blocks: int
    content: int
    file_block: int


class BlockMap:
    """Which file each block of a device belongs to."""

    def __init__(self, root: Node, extents: Mapping[int, Sequence[Extent]]) -> None:
        self._names: dict[int, tuple[str, int]] = {}
        for path, node in walk(root):
            if node.content >= 0:
                self._names.setdefault(node.content, (path_text(path), node.size))
        self._stretches = sorted(
            _Stretch(extent.device_block, extent.blocks, content, extent.file_block)
            for content, own in extents.items()
            for extent in own
        )
        self._starts = [stretch.device_block for stretch in self._stretches]

    def blocks(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        """The (content, block of its file) of each block in a range of the device, what fills sectors left out."""
        first, last = offset // BLOCK_SIZE, -(-(offset + length) // BLOCK_SIZE)
        number = max(0, bisect_right(self._starts, first) - 1)
        for stretch in self._stretches[number:]:
            if stretch.device_block >= last:
                return
            begin = max(first, stretch.device_block)
            for block in range(begin, min(last, stretch.device_block + stretch.blocks)):
                yield stretch.content, stretch.file_block + block - stretch.device_block

    def range(self, content: int, first: int, stop: int, at: float) -> FileRead:
        """Blocks `first` to `stop` of a file, cut off where it ends."""
        path, size = self._names[content]
        offset = first * BLOCK_SIZE
        return FileRead(path, offset, min(stop * BLOCK_SIZE, size) - offset, round(at, 3))


class _Open:
    """A range that may go on: blocks `first` to `stop` of a content."""

    __slots__ = ("at", "content", "first", "stop")

    def __init__(self, content: int, block: int, at: float) -> None:
        self.content, self.first, self.stop, self.at = content, block, block + 1, at


def file_reads(reads: Iterable[DeviceRead], blocks: BlockMap) -> list[FileRead]:
    """What was read, as ranges of files in the order of their first read; each block counts once."""
    ranges: list[_Open] = []
    latest: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    for read in reads:
        for content, block in blocks.blocks(read.offset, read.length):
            if (content, block) in seen:
                continue
            seen.add((content, block))
            number = latest.get(content, -1)
            if number >= 0 and len(ranges) - number <= NEAR and ranges[number].stop == block:
                ranges[number].stop += 1
                continue
            latest[content] = len(ranges)
            ranges.append(_Open(content, block, read.at))
    return [blocks.range(own.content, own.first, own.stop, own.at) for own in ranges]
