"""A directory that appears whole, or not at all: filled beside its place, flushed to disk, renamed.

The scratch directory has a fixed name and is locked, so that what a killed process left behind is cleared by the
next one, and two that write to the same place do not mix.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from copydesk.common.whole_file import flush_directory, flush_path
from copydesk.inference.quantisation.errors import (
    OutputBusyError,
    OutputExistsError,
    OutputFullError,
    OutputInsideSourceError,
    OutputUnwritableError,
)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def check_output(out: Path, source: Path) -> None:
    """Refuse a place that is taken, or within the source.

    Raises:
        OutputExistsError, OutputInsideSourceError: it is.
    """
    if out.exists() or out.is_symlink():
        raise OutputExistsError(out)
    if out.resolve().is_relative_to(source.resolve()):
        raise OutputInsideSourceError(out, source)


@contextlib.contextmanager
def appearing(out: Path, needed: int) -> Iterator[Path]:
    """Give an empty directory to fill, which becomes `out` when nothing went wrong; else it is removed.

    Raises:
        OutputFullError: fewer than `needed` bytes are free, or the disk ran full.
        OutputBusyError: another process writes to the same place.
        OutputExistsError: something appeared there meanwhile.
        OutputUnwritableError: it cannot be written for another reason.
    """
    with _reported(out, needed):
        free = shutil.disk_usage(out.parent).free
        if free < needed:
            raise OutputFullError(out.parent, needed, free)
        with _locked_scratch(out) as scratch:
            yield scratch
            flush_directory(scratch)
            if out.exists():
                raise OutputExistsError(out)
            scratch.rename(out)
            flush_path(out.parent)


@contextlib.contextmanager
def _reported(out: Path, needed: int) -> Iterator[None]:
    """Say of errors in writing where they happened; those in reading are typed already."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise OutputFullError(out.parent, needed, shutil.disk_usage(out.parent).free) from error
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            raise OutputExistsError(out) from error
        raise OutputUnwritableError(out, error.strerror or str(error)) from error


@contextlib.contextmanager
def _locked_scratch(out: Path) -> Iterator[Path]:
    scratch = out.with_name(f".{out.name}.partial")
    scratch.mkdir(exist_ok=True)
    # Not through a link: what is found in there is removed.
    descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _lock(descriptor, scratch, out)
        try:
            for left_over in scratch.iterdir():
                left_over.unlink()
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, scratch: Path, out: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputBusyError(out) from error
    # Whoever had the lock before may have renamed or removed what was opened.
    if not (scratch.exists() and os.path.samestat(os.fstat(descriptor), scratch.lstat())):
        raise OutputBusyError(out)
