"""Files and directories that are there whole or not at all, even after a crash."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file such that whoever reads it, even after a crash, finds the old content or the new, whole.

    Raises:
        OSError: It cannot be written; what was there stays.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def flush_directory(directory: Path) -> None:
    """Have the disk keep all files of a directory that holds nothing else, and their names. Raises `OSError`."""
    for path in directory.iterdir():
        flush_path(path)
    flush_path(directory)


def flush_path(path: Path) -> None:
    """Have the disk keep a file's content, or a directory's list of names. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
