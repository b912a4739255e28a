"""Two trees, name by name and byte by byte."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from copydesk.imagefetcher.convert.spool import Content, Spool
from copydesk.imagefetcher.erofs.reader import FileSystem
from copydesk.imagefetcher.index import BLOCK_SIZE
from copydesk.imagefetcher.trace import path_text
from copydesk.imagefetcher.tree import Extent, Node

MAX_DIFFERENCES: Final = 100
_STEP: Final = 256
"""Blocks that are compared at a time."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not the same: at `path`, in `what`; `expected` is the image's, `found` the artifact's."""

    path: str
    what: str
    expected: str
    found: str


@dataclass(slots=True)
class Comparison:
    """What was found: at most MAX_DIFFERENCES differences, and how many bytes of contents were compared."""

    differences: tuple[Difference, ...] = ()
    compared: int = 0


@dataclass(slots=True)
class _Comparer:
    spool: Spool
    system: FileSystem
    device: BinaryIO
    progress: Callable[[int], None]
    found: list[Difference] = field(default_factory=list)
    compared: int = 0
    same: set[tuple[int, int]] = field(default_factory=set)
    partners: dict[int, Node] = field(default_factory=dict)

    def compare(self, root: Node) -> None:
        pending = [(b"", root, self.system.root)]
        while pending and len(self.found) < MAX_DIFFERENCES:
            path, expected, found = pending.pop()
            self._compare_node(path, expected, found)
            prefix = path + b"/" if path else b""
            for name in sorted(expected.children.keys() | found.children.keys(), reverse=True):
                pair = expected.children.get(name), found.children.get(name)
                if pair[0] is None or pair[1] is None:
                    self._differ(prefix + name, "name", _there(pair[0]), _there(pair[1]))
                else:
                    pending.append((prefix + name, pair[0], pair[1]))

    def _compare_node(self, path: bytes, expected: Node, found: Node) -> None:
        # Names of one file must be names of one file in the other tree too.
        if self.partners.setdefault(id(expected), found) is not found:
            self._differ(path, "hard links", "names of one file", "names of two")
        for what in ("mode", "uid", "gid", "mtime", "xattrs", "target", "device", "size"):
            own, other = getattr(expected, what), getattr(found, what)
            if own != other:
                self._differ(path, what, _shown(what, own), _shown(what, other))
        if expected.is_regular and expected.size == found.size > 0:
            self._compare_content(path, expected.content, found.content)

    def _compare_content(self, path: bytes, expected: int, found: int) -> None:
        if (expected, found) in self.same:
            return
        content, extents = self.spool.contents[expected], self.system.extents[found]
        for first, count in _ranges(content, extents):
            own, other = self._own(content, first, count), self._other(extents, first, count)
            end = min(content.size - first * BLOCK_SIZE, count * BLOCK_SIZE)
            self.compared += end
            self.progress(end)
            if own[:end] != other[:end]:
                at = next(at for at in range(end) if own[at] != other[at])
                self._differ(path, f"byte {first * BLOCK_SIZE + at}", f"{own[at]:#04x}", f"{other[at]:#04x}")
                return
        self.same.add((expected, found))

    def _own(self, content: Content, first: int, count: int) -> bytes:
        runs = [Extent(run.file_block, run.blocks, run.spool_block) for run in content.runs]
        return _gather(runs, first, count, self.spool.read)

    def _other(self, extents: Sequence[Extent], first: int, count: int) -> bytes:
        return _gather(extents, first, count, self._read_device)

    def _read_device(self, block: int, count: int) -> bytes:
        self.device.seek(block * BLOCK_SIZE)
        return self.device.read(count * BLOCK_SIZE)

    def _differ(self, path: bytes, what: str, expected: str, found: str) -> None:
        self.found.append(Difference("/" + path_text(path), what, expected, found))


def compare_trees(
    root: Node, spool: Spool, system: FileSystem, device: Path, progress: Callable[[int], None]
) -> Comparison:
    """Compares the tree and contents of an image with those of an artifact whose data is the file `device`."""
    with device.open("rb") as file:
        comparer = _Comparer(spool, system, file, progress)
        comparer.compare(root)
    return Comparison(tuple(comparer.found[:MAX_DIFFERENCES]), comparer.compared)


def _ranges(content: Content, extents: Sequence[Extent]) -> list[tuple[int, int]]:
    """Every block that either side stores, a few at a time; what both leave out are zeros on both sides."""
    spans = sorted(
        [(run.file_block, run.blocks) for run in content.runs] + [(e.file_block, e.blocks) for e in extents]
    )
    ranges = []
    end = 0
    for start, blocks in spans:
        for first in range(max(start, end), start + blocks, _STEP):
            ranges.append((first, min(_STEP, start + blocks - first)))
        end = max(end, start + blocks)
    return ranges


def _gather(extents: Sequence[Extent], first: int, count: int, read: Callable[[int, int], bytes]) -> bytes:
    """Blocks of a file, holes as zeros."""
    gathered = bytearray(count * BLOCK_SIZE)
    number = max(0, bisect_right(extents, first, key=lambda extent: extent.file_block) - 1)
    while number < len(extents) and extents[number].file_block < first + count:
        extent = extents[number]
        start = max(first, extent.file_block)
        blocks = min(first + count, extent.file_block + extent.blocks) - start
        if blocks > 0:
            at = (start - first) * BLOCK_SIZE
            data = read(extent.device_block + start - extent.file_block, blocks)
            gathered[at : at + blocks * BLOCK_SIZE] = data
        number += 1
    return bytes(gathered)


def _there(node: Node | None) -> str:
    return "is there" if node is not None else "is missing"


def _shown(what: str, value: object) -> str:
    return f"{value:#o}" if what == "mode" and isinstance(value, int) else repr(value)[:200]
