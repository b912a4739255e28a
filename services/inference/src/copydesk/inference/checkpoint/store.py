"""The cache of prepared models: a directory appears in it whole, or not at all.

A model is built in a sibling of its final place, flushed to disk and renamed. A lock file lets one process build
while others wait; it is held through the kernel, so that a killed process leaves no lock behind.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from copydesk.common.cache_folder import cache_folder
from copydesk.common.whole_file import flush_directory, flush_path
from copydesk.inference.checkpoint.errors import CacheFullError, CacheUnusableError, CorruptCheckpointError
from copydesk.inference.checkpoint.manifest import check_contents, describe, write_manifest

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

Build = Callable[[Path], None]
"""Fills the empty directory that it is given."""


class ModelStore:
    """Prepared models under `root`, each in `<name>-<first 12 digits of its key>`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def from_environment(cls) -> ModelStore:
        """Under `COPYDESK_CACHE_DIR` if that is set, else in the user's cache folder."""
        return cls(cache_folder() / "models")

    def directory(self, name: str, key: str) -> Path:
        """Where the model of that name, made from what `key` stands for, is or will be."""
        return self.root / f"{name}-{key[:12]}"

    def is_ready(self, name: str, key: str) -> bool:
        """Whether it is there, made from the same things, with every byte as it was written.

        Reading 270 MB takes a fifth of a second; a damaged model would go on under the digest of the sound one.
        """
        try:
            return check_contents(self.directory(name, key)).key == key
        except (CorruptCheckpointError, OSError):
            return False

    def verify(self, name: str, key: str) -> None:
        """Compare every byte with the manifest, or raise `CorruptCheckpointError`."""
        check_contents(self.directory(name, key))

    def obtain(self, name: str, key: str, build: Build, *, needed_bytes: int) -> Path:
        """Return the directory of the model, building it first when it is missing or damaged.

        Raises:
            CacheFullError: Fewer than `needed_bytes` are free, or the disk ran full; nothing is left behind.
            CacheUnusableError: The folder cannot be written.
        """
        target = self.directory(name, key)
        if self.is_ready(name, key):
            return target
        with self._reported(needed_bytes), self._locked(target):
            if not self.is_ready(name, key):
                self._require_space(needed_bytes)
                self._build(target, key, build)
        return target

    def _build(self, target: Path, key: str, build: Build) -> None:
        scratch = _scratch(target)
        shutil.rmtree(scratch, ignore_errors=True)  # what a killed process left; the lock says it is nobody's now
        scratch.mkdir()
        try:
            build(scratch)
            write_manifest(scratch, describe(scratch, key))
            flush_directory(scratch)
            check_contents(scratch)
            shutil.rmtree(target, ignore_errors=True)
            scratch.rename(target)
            flush_path(self.root)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self, target: Path) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / f".{target.name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _reported(self, needed_bytes: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise CacheFullError(self.root, needed_bytes, self._free_bytes()) from error
            raise CacheUnusableError(self.root, error.strerror or str(error)) from error

    def _require_space(self, needed_bytes: int) -> None:
        free = self._free_bytes()
        if free < needed_bytes:
            raise CacheFullError(self.root, needed_bytes, free)

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free


def _scratch(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial")
