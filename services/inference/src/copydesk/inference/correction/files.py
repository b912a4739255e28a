"""Files of a model directory, which may come from anywhere: none is waited for, nor read without end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from copydesk.inference.correction.errors import ModelFileError

MOST_BYTES = 16 << 20
"""Of configurations and templates; those that exist have some kilobytes."""
MOST_TOKENIZER_BYTES = 256 << 20
"""Of tokenizer.json; the largest vocabularies take some thirty million."""


def read_content(directory: Path, name: str, most: int = MOST_BYTES) -> bytes:
    """Return what a file holds.

    Raises:
        FileNotFoundError: There is none.
        ModelFileError: It is no ordinary file, too long, or cannot be read.
    """
    try:
        # Whoever opens a pipe waits for its other end, unless asked not to.
        descriptor = os.open(directory / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ModelFileError(directory, name, "it is no ordinary file")
            content = file.read(most + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ModelFileError(directory, name, error.strerror or str(error)) from error
    if len(content) > most:
        raise ModelFileError(directory, name, f"it is longer than {most >> 20} MiB")
    return content
