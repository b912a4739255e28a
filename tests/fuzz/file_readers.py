"""Readers of files, each given the same hostile content."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from copydesk.common.errors import CopydeskError


def check_readers(readers: Iterable[tuple[str, Callable[[Path], object]]], folder: Path, content: bytes) -> None:
    """Each takes the file, under the name that it expects, or refuses it with an error of its own."""
    for name, read in readers:
        path = folder / name
        path.write_bytes(content)
        with contextlib.suppress(CopydeskError):
            read(path)
