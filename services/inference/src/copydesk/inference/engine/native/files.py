"""Files of a model directory, which may come from anywhere: none is waited for, nor read without end."""

from __future__ import annotations

import stat
from pathlib import Path

from copydesk.inference.engine.native.errors import UnreadableModelError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib"})
"""How files of weights end that can run any program as they are read."""
LONGEST_HEADER = 100_000_000
"""Bytes: the limit of safetensors itself. Headers of real models have some hundred kilobytes."""

_LONGEST_CONFIG = 16 << 20  # bytes; those that exist have a few thousand


def require_file(path: Path) -> None:
    """Check that `path` can be opened without waiting for somebody else: that it is no pipe and no device.

    Raises:
        UnreadableModelError: it is one, is missing, or has a name that no file can have.
    """
    mode = _status(path)[0]
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # what is wrong with a directory is said when it is opened
        raise UnreadableModelError(path, "is no file")


def leads_outside(directory: Path, path: Path) -> bool:
    """Whether `path`, in the model's `directory`, is a link to a file that is not the model's own.

    In Hugging Face's cache a model's files are links into the folder `blobs` beside it, which is fine.

    Raises:
        OSError, RuntimeError: it leads nowhere, or in a circle.
    """
    if not path.is_symlink():
        return False
    home = directory.resolve()
    allowed = [home]
    if home.parent.name == "snapshots":
        allowed.append(home.parent.parent / "blobs")
    target = path.resolve(strict=True)
    return not any(target.is_relative_to(place) for place in allowed)


def read_settings(path: Path) -> bytes:
    """Return what a file such as `config.json` holds.

    Raises:
        UnreadableModelError: it is missing, no file, or far too long.
    """
    require_file(path)
    size = _status(path)[1]
    if size > _LONGEST_CONFIG:
        raise UnreadableModelError(path, f"is {size} bytes long; expected {_LONGEST_CONFIG} at the most")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableModelError(path, error.strerror or str(error)) from error


def _status(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # a ValueError is a name with a zero byte
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnreadableModelError(path, reason) from error
    return status.st_mode, status.st_size
