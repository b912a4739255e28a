"""Files that a command writes at its end: found out before the work, not after it, that one cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

from copydesk.common.errors import CopydeskError


class OutputError(CopydeskError):
    """A file that cannot be written: `path`, and why."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


def require_writable(path: Path | None) -> None:
    """Raise `OutputError` where a file of this name cannot be made or replaced; devices need neither."""
    if path is None or (path.exists() and not path.is_file() and not path.is_dir()):
        return
    folder = path.parent
    if path.is_dir():
        raise OutputError(path, "is a directory")
    if not folder.is_dir():
        raise OutputError(path, f"there is no directory {folder}")
    if not os.access(folder, os.W_OK):
        raise OutputError(path, "may not be written")
