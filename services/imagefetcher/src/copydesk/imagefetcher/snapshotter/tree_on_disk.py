"""Writes a tree of files from memory onto the disk, as unpacking its layers would have."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from copydesk.imagefetcher.convert.spool import Spool
from copydesk.imagefetcher.index import BLOCK_SIZE
from copydesk.imagefetcher.tree import Node, walk

_PIECE_BLOCKS = 256


def write_tree(root: Node, spool: Spool, target: Path) -> None:
    """Write what is under `root` into the empty folder `target`. Raises OSError.

    Nothing can lead out of it: each name is one that a file can have, and each folder on the way was just made
    here.
    """
    top = os.fsencode(target)
    first_names: dict[int, bytes] = {}
    folders: list[tuple[bytes, Node]] = []
    for name, node in walk(root):
        path = top + b"/" + name if name else top
        if node.is_directory:
            if name:
                os.mkdir(path, 0o700)  # noqa: PTH102 - a Path holds no bytes, and a name is bytes
            folders.append((path, node))
        elif id(node) in first_names:
            os.link(first_names[id(node)], path, follow_symlinks=False)
        else:
            first_names[id(node)] = path
            _make(node, spool, path)
            _dress(node, path)
    for path, node in reversed(folders):  # last, as what is made in a folder changes its time
        _dress(node, path)


def _make(node: Node, spool: Spool, path: bytes) -> None:
    if node.is_symlink:
        os.symlink(node.target, path)  # noqa: PTH211
    elif node.is_regular:
        _write(node, spool, path)
    else:
        os.mknod(path, node.mode, os.makedev(*node.device))


def _write(node: Node, spool: Spool, path: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(file, node.size)
        for run in spool.contents[node.content].runs if node.content >= 0 else ():
            for start in range(0, run.blocks, _PIECE_BLOCKS):
                at = (run.file_block + start) * BLOCK_SIZE
                part = spool.read(run.spool_block + start, min(_PIECE_BLOCKS, run.blocks - start))
                os.pwrite(file, part[: node.size - at], at)
    finally:
        os.close(file)


def _dress(node: Node, path: bytes) -> None:
    """Give a file its owner, then what a change of owner takes away."""
    os.chown(path, node.uid, node.gid, follow_symlinks=False)
    for name, value in node.xattrs.items():
        with contextlib.suppress(OSError):  # as containerd does where a file system knows no such namespace
            os.setxattr(path, name, value, follow_symlinks=False)
    if not node.is_symlink:
        os.chmod(path, stat.S_IMODE(node.mode))  # noqa: PTH101
    os.utime(path, ns=(node.mtime, node.mtime), follow_symlinks=False)
