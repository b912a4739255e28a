"""Files that are replaced in one step."""

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
