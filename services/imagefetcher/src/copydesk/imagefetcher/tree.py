"""A file tree in memory: everything about an image's files but their contents."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Extent(NamedTuple):
    """`blocks` blocks of a file, from its block `file_block` on, that lie on the device from `device_block` on."""

    file_block: int
    blocks: int
    device_block: int


@dataclass(slots=True, eq=False)
class Node:
    """A file of any kind; names that are hard links of one another share one node.

    `mode` has the bits of the type, `mtime` is in nanoseconds since 1970, `size` in bytes. `content` numbers
    what a regular file holds (files that hold the same share it; -1: nothing), `layer` the image layer that
    wrote it last.
    """

    mode: int
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    xattrs: dict[bytes, bytes] = field(default_factory=dict)
    children: dict[bytes, Node] = field(default_factory=dict)
    target: bytes = b""
    device: tuple[int, int] = (0, 0)
    size: int = 0
    content: int = -1
    layer: int = 0

    @property
    def is_directory(self) -> bool:
        """Whether it has children."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_regular(self) -> bool:
        """Whether it has contents."""
        return stat.S_ISREG(self.mode)

    @property
    def is_symlink(self) -> bool:
        """Whether it has a target."""
        return stat.S_ISLNK(self.mode)

    @property
    def is_device(self) -> bool:
        """Whether it has device numbers."""
        return stat.S_ISCHR(self.mode) or stat.S_ISBLK(self.mode)


def walk(root: Node) -> Iterator[tuple[bytes, Node]]:
    """Every name under `root` with its path (the root's is empty), parents first, siblings in the order of bytes.

    A node of several names comes once for each.
    """
    pending = [(b"", root)]
    while pending:
        path, node = pending.pop()
        yield path, node
        prefix = path + b"/" if path else b""
        pending.extend((prefix + name, child) for name, child in sorted(node.children.items(), reverse=True))


def find(root: Node, path: bytes) -> Node | None:
    """The node at `path` (symlinks are not followed), or None."""
    node = root
    for name in path.split(b"/"):
        child = node.children.get(name)
        if child is None:
            return None
        node = child
    return node
