"""Layers, one over the other, as one tree.

A layer's entries are applied as a container runtime (containerd's archive package) would unpack them onto a
disk, and as the OCI image specification's layer.md says where the two differ: whiteouts hide only what lower
layers brought, wherever in the layer they stand. Names are resolved within the tree: `..` at the root stays
there, an absolute name begins there, and a symlink in the middle of a name is followed there, so nothing can
lead out.
"""

from __future__ import annotations

import stat
from collections.abc import Callable

from copydesk.imagefetcher.convert.errors import LayerError, PathEscapeError
from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.convert.tar_header import TarEntry
from copydesk.imagefetcher.convert.tar_reader import TarReader
from copydesk.imagefetcher.erofs.xattr import MAX_BYTES, is_storable
from copydesk.imagefetcher.tree import Node

WHITEOUT = b".wh."
OPAQUE = b".wh..wh..opq"
AUFS = b".wh..wh."
"""Names with which AUFS, where whiteouts come from, kept its own books; runtimes leave them out."""
MAX_NAME = 255
MAX_PATH = 4095
MAX_LINKS = 40
"""How many symlinks a path may lead through, as in the kernel."""
MAX_ID = 0xFFFFFFFF
MAX_TEXT = 512 << 20
"""Bytes of names, symlinks' targets and extended attributes that an image may have: all of them are in memory, and
a layer that packs well could bring 256 KiB of them with each file."""
_ROOT_MODE = stat.S_IFDIR | 0o755


class Flattener:
    """Takes layers from the lowest to the uppermost; `root` is the tree so far.

    `files` counts what was ever made. `max_files` bounds the memory that a hostile image can take: about half a
    kilobyte a file.
    """

    def __init__(self, spool: Spool, max_files: int = 5_000_000, max_text: int = MAX_TEXT) -> None:
        self.root = Node(_ROOT_MODE)
        self.dropped_xattrs = 0
        self._spool = spool
        self._layer = 0
        self.files = 0
        self._max_files = max_files
        self._text = 0
        self._max_text = max_text
        # Of the layer at work, by id; each holds its directory, so that no other can come by that id.
        self._placed: dict[int, tuple[Node, set[bytes]]] = {}
        self._pruned: dict[int, Node] = {}

    def apply(self, archive: TarReader) -> None:
        """Puts one layer over the tree; raises LayerError for one that cannot be, then the tree is of no use."""
        self._layer += 1
        self._placed.clear()
        self._pruned.clear()
        for entry in archive:
            try:
                self._apply_entry(entry, archive)
            except LayerError as error:
                if error.path:
                    raise
                raise type(error)(error.reason, entry.name) from error

    def _apply_entry(self, entry: TarEntry, archive: TarReader) -> None:
        parts = _parts(entry.name)
        if not parts:
            return  # The root itself: containerd keeps its own, so its mode here must not differ from there.
        *parents, name = parts
        if name == OPAQUE:
            directory = self._existing(parents)
            if directory is not None:
                self._prune(directory)
        elif any(part.startswith(AUFS) for part in parts):
            return
        elif name.startswith(WHITEOUT):
            self._whiteout(self._existing(parents), name.removeprefix(WHITEOUT))
        else:
            self._place(self._directory(parents), name, entry, archive)

    def _place(self, parent: Node, name: bytes, entry: TarEntry, archive: TarReader) -> None:
        _check_owner(entry)
        self._count_text(len(name) + len(entry.link))
        node = (
            self._link_target(entry)
            if entry.is_hard_link
            else self._file(parent.children.get(name), entry, archive)
        )
        parent.children[name] = node
        self._placed.setdefault(id(parent), (parent, set()))[1].add(name)
        # A hard link's entry, too, says what its file is like; the last one to say so is right.
        node.uid, node.gid, node.mtime = entry.uid, entry.gid, entry.mtime
        if not node.is_symlink:
            node.mode = stat.S_IFMT(node.mode) | entry.mode
        self._set_xattrs(node, entry.xattrs)

    def _file(self, present: Node | None, entry: TarEntry, archive: TarReader) -> Node:
        """The node that an entry describes; a directory that is there already is kept, with what is in it."""
        mode = entry.file_mode()
        if present is not None and present.is_directory and stat.S_ISDIR(mode):
            return present
        node = self._new(mode)
        if node.is_symlink:
            node.target, node.mode = _checked_target(entry.link), stat.S_IFLNK | 0o777
        elif node.is_device:
            node.device = _checked_device(node.mode, entry.device)
        elif node.is_regular:
            node.size = entry.size
            if entry.size:
                node.content = self._spool.add(entry.size, archive.pieces())
        return node

    def _new(self, mode: int) -> Node:
        self.files += 1
        if self.files > self._max_files:
            raise LayerError(f"the image has more than {self._max_files} files")
        return Node(mode, layer=self._layer)

    def _count_text(self, count: int) -> None:
        self._text += count
        if self._text > self._max_text:
            raise LayerError(f"the image has more than {self._max_text} bytes of names, targets and attributes")

    def _link_target(self, entry: TarEntry) -> Node:
        parts = _parts(entry.link)
        parent = self._existing(parts[:-1]) if parts else None
        node = parent.children.get(parts[-1]) if parent else None
        if node is None:
            raise LayerError(f"is a hard link to {entry.link[:200]!r}, which is not there")
        if node.is_directory:
            raise LayerError(f"is a hard link to {entry.link[:200]!r}, a directory")
        return node

    def _set_xattrs(self, node: Node, xattrs: dict[bytes, bytes]) -> None:
        storable = {name: value for name, value in xattrs.items() if _is_kept_xattr(name, value)}
        # As on a disk that knows no such namespace, where unpacking goes on without it.
        self.dropped_xattrs += len(xattrs) - len(storable)
        self._count_text(sum(len(name) + len(value) for name, value in storable.items()))
        node.xattrs |= storable
        if sum(len(name) + len(value) + 8 for name, value in node.xattrs.items()) > MAX_BYTES - 16:
            raise LayerError("has more extended attributes than a file can")

    def _whiteout(self, parent: Node | None, name: bytes) -> None:
        if name in (b"", b".", b".."):
            raise PathEscapeError("is a whiteout of no file")
        node = parent.children.get(name) if parent else None
        if parent is None or node is None:
            return
        self._prune(node)
        if not self._is_kept(parent, name, node):
            del parent.children[name]

    def _prune(self, top: Node) -> None:
        """Takes away what lower layers brought below `top`; done once a layer, there is nothing to take again."""
        order = [] if id(top) in self._pruned else [top]
        for directory in order:
            self._pruned[id(directory)] = directory
            below = directory.children.values()
            order.extend(child for child in below if child.is_directory and id(child) not in self._pruned)
        for directory in reversed(order):
            children = directory.children
            directory.children = {
                name: node for name, node in children.items() if self._is_kept(directory, name, node)
            }

    def _is_kept(self, parent: Node, name: bytes, node: Node) -> bool:
        placed = self._placed.get(id(parent))
        return bool(node.children) or (placed is not None and name in placed[1])

    def _existing(self, parts: list[bytes]) -> Node | None:
        return _Path(self.root, None).resolve(parts)

    def _directory(self, parts: list[bytes]) -> Node:
        node = _Path(self.root, self._new).resolve(parts)
        assert node is not None
        return node


class _Path:
    """Finds a directory from the root, symlinks followed within the tree; `new`, if given, makes missing ones."""

    def __init__(self, root: Node, new: Callable[[int], Node] | None) -> None:
        self._new = new
        self._root = root
        self._trail: list[tuple[bytes, Node]] = []
        self._pending: list[bytes] = []
        self._links = 0
        self._length = 0

    def resolve(self, parts: list[bytes]) -> Node | None:
        """The directory at `parts`; None where something is missing and nothing may be made."""
        self._pending = parts[::-1]
        while self._pending:
            name = self._pending.pop()
            if name == b"..":
                self._leave()
            elif name not in (b"", b".") and not self._enter(name):
                return None
        return self._here

    @property
    def _here(self) -> Node:
        return self._trail[-1][1] if self._trail else self._root

    def _enter(self, name: bytes) -> bool:
        node = self._here.children.get(name)
        if node is None:
            if self._new is None:
                return False
            _check_name(name)
            node = self._here.children[name] = self._new(_ROOT_MODE)
        if node.is_symlink:
            self._follow(node.target)
            return True
        if not node.is_directory:
            raise LayerError("lies below something that is no directory")
        self._trail.append((name, node))
        self._length += len(name) + 1
        if self._length > MAX_PATH:
            raise LayerError(f"lies deeper than a path of {MAX_PATH} bytes")
        return True

    def _leave(self) -> None:
        if self._trail:
            self._length -= len(self._trail.pop()[0]) + 1

    def _follow(self, target: bytes) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise PathEscapeError("leads through symlinks without end")
        if target.startswith(b"/"):
            self._trail, self._length = [], 0
        self._pending.extend(target.split(b"/")[::-1])


def _parts(path: bytes) -> list[bytes]:
    """The names of a path from the root, `.` and `..` worked out as Go's filepath.Clean does, the root's `..`
    left."""
    parts: list[bytes] = []
    for name in path.split(b"/"):
        if name == b"..":
            if parts:
                parts.pop()
        elif name not in (b"", b"."):
            _check_name(name)
            parts.append(name)
    if len(path) > MAX_PATH:
        raise LayerError(f"has a name of {len(path)} bytes, at most {MAX_PATH} are possible")
    return parts


def _check_name(name: bytes) -> None:
    if len(name) > MAX_NAME or b"\0" in name:
        raise LayerError(f"has a name that no file can have: {name[:40]!r} of {len(name)} bytes")


def _check_owner(entry: TarEntry) -> None:
    if not (0 <= entry.uid <= MAX_ID and 0 <= entry.gid <= MAX_ID):
        raise LayerError(f"belongs to user {entry.uid} and group {entry.gid}, which cannot be")
    if abs(entry.mtime // 1_000_000_000) >= 1 << 62:
        raise LayerError("has a time of change that cannot be")


def _is_kept_xattr(name: bytes, value: bytes) -> bool:
    """Attributes by which overlayfs rules its layers are no image's business: one could show what others hide."""
    return is_storable(name, value) and not name.startswith((b"trusted.overlay.", b"user.overlay."))


def _checked_target(target: bytes) -> bytes:
    if not target or len(target) > MAX_PATH or b"\0" in target:
        raise LayerError(f"is a symlink to a name of {len(target)} bytes")
    return target


def _checked_device(mode: int, device: tuple[int, int]) -> tuple[int, int]:
    major, minor = device
    if stat.S_ISCHR(mode) and device == (0, 0):
        raise LayerError("is a device by which overlayfs hides files, which a layer does by a whiteout")
    if not (0 <= major < 1 << 12 and 0 <= minor < 1 << 20):
        raise LayerError(f"is a device of number {major}:{minor}, which cannot be")
    return device
