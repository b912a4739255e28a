"""Where each block goes on the device: first what a start-up reads, in that order, then the rest, layer by layer.

What is read together lies together, so that few sectors are fetched. Each layer begins on a fresh sector, and
within a layer a sector that is nearly full ends early behind a content that its own digest marks: where two images
differ by a file, or by what their start-ups read, their sectors are the same again soon after, and a node's cache
keeps them once. What fills a sector up is zeros, which cost nothing once compressed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from copydesk.imagefetcher.convert.spool import Content, Run
from copydesk.imagefetcher.erofs.chunks import block_count
from copydesk.imagefetcher.index import BLOCK_SIZE
from copydesk.imagefetcher.trace import Trace, path_bytes
from copydesk.imagefetcher.tree import Extent, Node, walk

MAX_TRACED_CHUNKS = 1 << 14
"""A file that is read in parts is cut into no more chunks than this (128 KiB of table)."""


NEARLY_FULL = 7 / 8
"""From this share of a sector on it may end early.

Of 30 simulated images (470 MiB), each beside one that lacks three of its files, 94 per cent of the sectors were in
common, for 4 per cent more of them; 24 per cent without.
"""
MARKED = 8
"""One content in so many ends a sector, if that is nearly full."""


class Piece(NamedTuple):
    """`blocks` blocks of the device: from spool block `spool_block` on, or zeros where it is negative."""

    spool_block: int
    blocks: int


class Reading(NamedTuple):
    """Blocks of a content that a start-up reads."""

    content: int
    first: int
    blocks: int


@dataclass(slots=True)
class DevicePlan:
    """The device, piece by piece, where each content's blocks lie on it, and how many blocks a start-up reads."""

    pieces: list[Piece] = field(default_factory=list)
    extents: dict[int, list[Extent]] = field(default_factory=dict)
    blocks: int = 0
    hot_blocks: int = 0


class _Covered:
    """The blocks of one content that have their place already, as sorted intervals that do not touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def cover(self, start: int, end: int) -> list[tuple[int, int]]:
        """Covers a range; returns the parts of it that were not covered."""
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        fresh = []
        at = start
        for known_start, known_end in zip(self._starts[low:high], self._ends[low:high], strict=True):
            if at < known_start:
                fresh.append((at, min(known_start, end)))
            at = max(at, known_end)
        if at < end:
            fresh.append((at, end))
        start, end = min([start, *self._starts[low : low + 1]]), max([end, *self._ends[high - 1 : high]])
        if high > low:
            self._starts[low:high], self._ends[low:high] = [start], [end]
        else:
            self._starts.insert(low, start)
            self._ends.insert(low, end)
        return fresh


class _Planner:
    def __init__(self, contents: Sequence[Content], sector_blocks: int) -> None:
        self.plan = DevicePlan()
        self._contents = contents
        self._sector_blocks = sector_blocks
        self._covered: dict[int, _Covered] = {}

    def place(self, reading: Reading) -> None:
        """Gives blocks that have no place yet the next ones; holes need none."""
        covered = self._covered.setdefault(reading.content, _Covered())
        for start, end in covered.cover(reading.first, reading.first + reading.blocks):
            for run in self._contents[reading.content].runs:
                self._place_run(reading.content, run, start, end)

    def begin_sector(self) -> None:
        """Fills the sector up."""
        count = -self.plan.blocks % self._sector_blocks
        if count:
            self._append(Piece(-1, count))

    def end_sector(self, content: int) -> None:
        """Fills the sector up if it is nearly full and `content` marks its end."""
        filled = self.plan.blocks % self._sector_blocks
        if self._contents[content].mark % MARKED == 0 and filled >= NEARLY_FULL * self._sector_blocks:
            self.begin_sector()

    def finish(self) -> DevicePlan:
        """The plan, with each content's extents in the order of the file."""
        if not self.plan.blocks:
            self._append(Piece(-1, 1))  # A device of no blocks cannot be mounted.
        self.plan.extents = {content: _joined(extents) for content, extents in self.plan.extents.items()}
        return self.plan

    def _place_run(self, content: int, run: Run, start: int, end: int) -> None:
        first = max(start, run.file_block)
        count = min(end, run.file_block + run.blocks) - first
        if count <= 0:
            return
        self.plan.extents.setdefault(content, []).append(Extent(first, count, self.plan.blocks))
        self._append(Piece(run.spool_block + first - run.file_block, count))

    def _append(self, piece: Piece) -> None:
        self.plan.pieces.append(piece)
        self.plan.blocks += piece.blocks


def plan_device(
    contents: Sequence[Content], cold: Iterable[tuple[int, int]], hot: Iterable[Reading], sector_size: int
) -> DevicePlan:
    """Places every block of every content once.

    `hot` is what a start-up reads, in its order; `cold` lists all contents as (layer, content) in the order in
    which what is left of them shall lie.
    """
    planner = _Planner(contents, sector_size // BLOCK_SIZE)
    for reading in hot:
        planner.place(reading)
    planner.plan.hot_blocks = planner.plan.blocks
    layer = -1
    for own_layer, content in cold:
        if own_layer != layer:
            planner.begin_sector()
            layer = own_layer
        planner.place(Reading(content, 0, block_count(contents[content].size)))
        planner.end_sector(content)
    return planner.finish()


def cold_order(root: Node) -> list[tuple[int, int]]:
    """Each content once, as (layer, content): by the lowest layer that brought it, then by its first name."""
    layers: dict[int, int] = {}
    for _, node in walk(root):
        if node.content >= 0:
            layers[node.content] = min(node.layer, layers.get(node.content, node.layer))
    # Sorting is stable: within a layer the order stays that of the tree.
    return sorted(((layer, content) for content, layer in layers.items()), key=lambda pair: pair[0])


def readings(root: Node, trace: Trace) -> list[Reading]:
    """What the trace read, in blocks of contents; names that are not in this image are left out."""
    found = []
    names: dict[bytes, Node] = {}
    for read in sorted(trace.reads, key=lambda read: read.at):
        if not names:
            names = {path: node for path, node in walk(root) if node.content >= 0}
        node = names.get(path_bytes(read.path).strip(b"/"))
        if node is None or read.offset >= node.size or not read.length:
            continue
        found.append(_rounded(node, read.offset, min(read.offset + read.length, node.size)))
    return found


def _rounded(node: Node, start: int, end: int) -> Reading:
    """Whole blocks, and for a large file a few at a time, to keep its table of chunks short."""
    blocks = block_count(node.size)
    unit = 1 << max(0, -(-blocks // MAX_TRACED_CHUNKS) - 1).bit_length()
    first = start // BLOCK_SIZE // unit * unit
    last = min(-(-block_count(end) // unit) * unit, blocks)
    return Reading(node.content, first, last - first)


def _joined(extents: list[Extent]) -> list[Extent]:
    joined: list[Extent] = []
    for extent in sorted(extents):
        last = joined[-1] if joined else None
        if (
            last
            and last.file_block + last.blocks == extent.file_block
            and (last.device_block + last.blocks == extent.device_block)
        ):
            joined[-1] = Extent(last.file_block, last.blocks + extent.blocks, last.device_block)
        else:
            joined.append(extent)
    return joined
